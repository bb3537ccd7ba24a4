package mirror

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

const (
	maxListPage  = 16 << 20
	listPageSize = 100
	listRate     = 256 << 10         // bytes a second that looks at a list may cost on average, as long as the interval allows
	roomDepth    = adp.MaxDepth + 16 // a room resource holds schemas that were signed
)

// listedRoom is what a host says about one of its rooms.
type listedRoom struct {
	id, visibility, status string
	seq                    int64 // 0 when it does not say
	optOut                 bool  // it asks not to be mirrored, as the host says
	hash                   string
}

// sig is what changes when a room has news.
func (l listedRoom) sig() string { return fmt.Sprintf("%d %s %s", l.seq, l.hash, l.status) }

func (l listedRoom) over() bool {
	return l.status == string(room.Ended) || l.status == string(room.Cancelled)
}

func readListed(v adp.Value) (l listedRoom, ok bool) {
	l = listedRoom{id: v.Get("id").Text(), visibility: word(v.Get("visibility")), status: word(v.Get("status"))}
	if seq, isInt := v.Get("seq").Int(); isInt && seq > 0 && adp.IsHash(v.Get("hash").Text()) {
		l.seq, l.hash = seq, v.Get("hash").Text()
	}
	l.optOut = l.visibility == room.Public && optsOut(v.Get("policy"))
	return l, adp.IsRoomID(l.id)
}

// word is a text of the list that is to be one of a few, cut to a length that these do not have:
// it is remembered.
func word(v adp.Value) string {
	s := v.Text()
	return s[:min(len(s), 32)]
}

// listing is what a host lists.
type listing struct {
	rooms   map[string]listedRoom
	whole   bool   // it was read to its end: a room that is missing is not listed
	crowded bool   // it goes on beyond mirror.rooms_per_host
	note    string // what is odd about it
	fresh   fresh  // of rooms that are only listed
}

// list reads the room list, all pages. at is when it began, Unix ms.
func (h *host) list(ctx context.Context, at int64) (listing, error) {
	rooms := map[string]listedRoom{}
	var fresh fresh
	next := fmt.Sprintf("%s/rooms/public?limit=%d", h.api(), listPageSize)
	seen := map[[sha256.Size]byte]bool{} // hosts choose how long their URLs are
	note, size, began := "", int64(0), time.Now()
	defer func() { h.listCost = max(time.Since(began), time.Duration(size)*time.Second/listRate) }()
	for barren := 0; next != ""; {
		if seen[sha256.Sum256([]byte(next))] {
			note = "the room list leads back to a page that was read before"
			break
		}
		if barren == 3 {
			note = "the room list goes on without naming another room"
			break
		}
		seen[sha256.Sum256([]byte(next))] = true
		resp, err := h.get(ctx, next, maxListPage, apiType)
		var items []element
		if err == nil {
			size += int64(len(resp.Body))
			items, err = split(resp.Body)
		}
		switch {
		case err == nil:
		case len(seen) == 1 || ctx.Err() != nil:
			return listing{}, fmt.Errorf("the room list: %w", err)
		default: // what the pages before it list is followed all the same
			return listing{rooms: rooms, fresh: fresh, note: fmt.Sprintf("page %d of the room list: %v", len(seen), err)}, nil
		}
		barren++
		var held map[string]bool // of a list that is too long, rooms of this page that are held are followed all the same
		for _, item := range items {
			v, err := adp.ScanDepth(item.raw, roomDepth)
			if err = cmp.Or(item.err, err); err != nil {
				note = fmt.Sprintf("the room list holds an entry that cannot be read: %v", err)
				continue
			}
			l, ok := readListed(v)
			if _, dup := rooms[l.id]; !ok || dup {
				continue
			}
			if len(rooms) >= h.m.o.RoomsPerHost {
				if held == nil {
					held = h.heldRooms()
				}
				if !held[l.id] {
					continue
				}
			}
			rooms[l.id], barren = l, 0
			if err := h.noteListed(&fresh, l, v, at); err != nil {
				return listing{}, err
			}
		}
		if held != nil {
			return listing{rooms: rooms, fresh: fresh, crowded: true, note: h.crowded()}, nil
		}
		if next, err = nextPage(resp.URL, resp.Header, h.origin); err != nil {
			note = fmt.Sprintf("the room list: %v", err)
			break
		}
	}
	return listing{rooms: rooms, fresh: fresh, whole: note == "", note: note}, nil
}

// crowded says that there are too many rooms.
func (h *host) crowded() string {
	return fmt.Sprintf("the host lists more than %d rooms (mirror.rooms_per_host); the others are not followed", h.m.o.RoomsPerHost)
}

func (h *host) heldRooms() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := map[string]bool{}
	for id, v := range h.rooms {
		if v.r != nil {
			held[id] = true
		}
	}
	return held
}

// remark keeps what is odd about a host, and logs it once.
func (h *host) remark(note string) {
	h.mu.Lock()
	old := h.note
	h.note = note
	h.mu.Unlock()
	if note != "" && note != old {
		h.m.log.Warn("something is odd about a host", "origin", h.origin, "reason", note)
	}
}

// nextPage is the URL of the next page (RFC 8288), "" at the end. Another origin
// is an error: what it said could not be attributed to this one.
func nextPage(at string, header http.Header, origin string) (string, error) {
	for _, field := range header.Values("Link") {
		for link := range strings.SplitSeq(field, ",") {
			target, params, ok := strings.Cut(strings.TrimSpace(link), ">")
			if !ok || !strings.HasPrefix(target, "<") || !relNext(params) {
				continue
			}
			base, err := url.Parse(at)
			if err != nil {
				return "", err
			}
			u, err := base.Parse(target[1:])
			if err != nil {
				return "", errors.New("its Link header is not a URL")
			}
			if u.Scheme+"://"+u.Host != origin {
				return "", fmt.Errorf("its Link header leads to another origin, %.100s://%.100s", u.Scheme, u.Host)
			}
			u.Fragment = ""
			return u.String(), nil
		}
	}
	return "", nil
}

func relNext(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(strings.TrimSpace(name), "rel") {
			return slices.Contains(strings.Fields(strings.ToLower(strings.Trim(strings.TrimSpace(value), `"`))), "next")
		}
	}
	return false
}

// element is one element of an answer, or the rest of it from where it is no JSON
// any more. raw is a copy: one that is kept does not keep the page.
type element struct {
	raw []byte
	err error
}

// split takes a JSON array apart. One element that cannot be read does not spoil
// those before it: each is scanned strictly by itself afterwards.
func split(body []byte) (items []element, err error) {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '[' {
		return nil, errors.New("the answer is not a JSON array")
	}
	v, bad := adp.ScanDepth(body, roomDepth+1)
	if bad == nil {
		for e := range v.Elements() {
			items = append(items, element{raw: bytes.Clone(e.Raw())})
		}
		return items, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		var raw json.RawMessage
		at := d.InputOffset()
		if err := d.Decode(&raw); err != nil {
			return append(items, element{bytes.Clone(bytes.TrimLeft(body[at:], ", \t\r\n")), bad}), nil
		}
		items = append(items, element{raw: raw})
	}
	if _, err := d.Token(); err != nil || len(bytes.TrimSpace(body[d.InputOffset():])) > 0 {
		items = append(items, element{bytes.Clone(body[d.InputOffset():]), bad})
	}
	return items, nil
}
