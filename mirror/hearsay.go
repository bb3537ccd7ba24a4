package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
)

// What to look for elsewhere when a host cannot be asked: the rooms that we hold, those
// that a key of the host has signed for, and, to be told and no more, those that other
// mirrors list.

const viaListPages = 10 // of the room list of another mirror

// SignedFor takes note that a key may have signed for a room of an origin: when its host
// cannot be asked, others may have what is signed for. It does not wait.
func (m *Mirror) SignedFor(origin string) {
	if h := m.host(origin); h != nil {
		poke(h.signed)
	}
}

// unsigned says of a room what is to be had and does not count; "" for nothing.
func (h *host) unsigned(v *roomView, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v.unsigned = what
}

// lookElsewhere goes through rooms of a host that cannot be asked.
func (h *host) lookElsewhere(ctx context.Context) {
	type want struct {
		v       *roomView
		genesis string
	}
	var work []want
	h.mu.Lock()
	for _, v := range h.rooms {
		if v.r == nil || v.busy || v.r.Row().State == replica.Complete {
			continue
		}
		if work = append(work, want{v, v.r.Genesis}); len(work) == elsewhereEach { // of a map, so that others come next time
			break
		}
	}
	for _, w := range work {
		w.v.busy = true
	}
	h.mu.Unlock()
	vouched := h.m.o.VouchedRooms(h.origin, elsewhereEach, func(roomID, genesis string) bool {
		_, held := h.m.o.Replicas.Get(h.origin, roomID)
		_, stopped := h.m.stopped(h.origin, roomID)
		return !held && !stopped
	})
	h.mu.Lock()
	for _, k := range vouched {
		if v := h.view(k.RoomID); v != nil && v.r == nil && !v.busy {
			v.busy = true
			work = append(work, want{v, k.Genesis})
		}
	}
	h.mu.Unlock()
	for _, w := range work {
		h.job(ctx, w.v, func(ctx context.Context) (listedRoom, error) {
			err := h.fromElsewhere(ctx, w.v, w.genesis, "")
			if err == nil || errors.Is(err, errNobody) || errors.Is(err, errNotNow) {
				err = h.completeAlone(ctx, w.v)
			}
			return listedRoom{}, err
		})
	}
	h.listElsewhere(ctx)
}

// view is what we know of a room; nil when there are too many. h.mu is held.
func (h *host) view(id string) *roomView {
	v := h.rooms[id]
	if v == nil && len(h.rooms) < h.m.o.RoomsPerHost {
		v = &roomView{id: id, limit: pageRecords}
		h.rooms[id] = v
	}
	return v
}

// listElsewhere reads what rooms of the host its other mirrors list, so that the
// operator is told of those that cannot be taken. At most once in each slow interval.
func (h *host) listElsewhere(ctx context.Context) {
	now := h.m.o.Now()
	h.mu.Lock()
	via, wait := h.row.Via, now < h.viaListed
	if !wait {
		h.viaListed = now + h.m.o.PollMax.Milliseconds()
	}
	h.mu.Unlock()
	if wait {
		return
	}
	for _, base := range via {
		if err := h.listVia(ctx, base); err != nil && ctx.Err() == nil {
			h.m.log.Debug("the room list of another mirror cannot be read", "origin", h.origin, "mirror", base, "error", err)
		}
	}
}

func (h *host) listVia(ctx context.Context, base string) error {
	u, err := url.Parse(base)
	if err != nil {
		return err
	}
	next := fmt.Sprintf("%s/m/%s/v1/rooms/public?limit=%d", base, url.PathEscape(fetch.Authority(h.origin)), listPageSize)
	for range viaListPages {
		if err := h.limiter.Wait(ctx); err != nil {
			return err
		}
		resp, err := h.m.o.Fetch.Do(ctx, fetch.Request{URL: next, MaxBytes: maxListPage, ContentType: apiType})
		if err != nil {
			return err
		}
		if resp.Status/100 != 2 {
			return &statusError{path: next, status: resp.Status}
		}
		items, err := split(resp.Body)
		if err != nil {
			return err
		}
		for _, item := range items {
			if v, err := adp.ScanDepth(item.raw, roomDepth); err == nil && item.err == nil {
				if l, ok := readListed(v); ok && l.visibility == room.Public {
					h.listedBy(l, base)
				}
			}
		}
		if next, err = nextPage(resp.URL, resp.Header, u.Scheme+"://"+u.Host); err != nil || next == "" {
			return err
		}
	}
	return nil
}

// listedBy takes note of a room that another mirror lists and that is not held here.
func (h *host) listedBy(l listedRoom, base string) {
	_, held := h.m.o.Replicas.Get(h.origin, l.id)
	if _, stopped := h.m.stopped(h.origin, l.id); held || stopped {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if v := h.view(l.id); v != nil && v.r == nil && !v.busy && v.unsigned == "" {
		v.unsigned = fmt.Sprintf("%s shows this room, and no key of the host has signed for it: it does not count, and is not copied", base)
	}
}
