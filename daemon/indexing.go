package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/index"
	"github.com/witan-adp/witan/index/messages"
	words "github.com/witan-adp/witan/index/text"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/web"
)

// indexFolder holds what is derived from the store for searching; it may be deleted while
// the daemon is stopped.
const indexFolder = "index"

// buildIndex opens the index of rooms and that of messages.
func (d *daemon) buildIndex(cursors *web.Cursors) error {
	open := func(name string) (*words.Store, error) {
		s, fresh, err := words.Open(filepath.Join(d.cfg.Data, indexFolder, name), d.log)
		if err != nil {
			return nil, err
		}
		d.words = append(d.words, s)
		if fresh {
			d.log.Info("the text index starts empty and is filled in the background", "index", name)
		}
		return s, nil
	}
	rooms, err := open("rooms")
	if err != nil {
		return err
	}
	d.index = index.New(index.Options{Cursors: cursors, Own: d.origin, Now: d.edges.Now, Text: rooms, Log: d.log,
		SyncedAt: func(origin, roomID string) int64 {
			if r, ok := d.set.Get(origin, roomID); ok {
				return r.SyncedAt.Load()
			}
			return d.mirror.SeenAt(origin, roomID)
		}})
	if err := d.index.Load(); err != nil {
		return err
	}
	if !d.cfg.Index.Messages {
		return nil
	}
	said, err := open("messages")
	if err != nil {
		return err
	}
	d.messages = messages.New(messages.Options{Cursors: cursors, Own: d.origin, Store: said, Log: d.log, Most: d.cfg.Index.MessagesMax,
		Look: d.lookAtMessages, Find: d.findRoom, Origins: index.Origins,
		Scan: func(id uint64, after, last int64, fn func(int64, []byte) error) error {
			r, ok := d.set.ByID(id)
			if !ok {
				return nil
			}
			return r.Scan(after, last, fn)
		},
		Record: func(id uint64, seq int64) ([]byte, bool, error) {
			r, ok := d.set.ByID(id)
			if !ok {
				return nil, false, nil
			}
			raw, ok, err := r.Record(seq)
			if replica.IsGone(err) {
				return nil, false, nil
			}
			return raw, ok, err
		},
	})
	return d.messages.Load()
}

func (d *daemon) closeIndex() (err error) {
	for _, s := range d.words {
		err = errors.Join(err, s.Close())
	}
	return err
}

func (d *daemon) messagesChanged(r *replica.Replica) {
	if d.messages != nil {
		d.messages.Changed(r.ID)
	}
}

// lookAtMessages tells what the search of messages has to know of a replica. Only what
// the index lists as public, and the mirror does not hide, is searched.
func (d *daemon) lookAtMessages(_ context.Context, id uint64) (out messages.Room, ok bool, err error) {
	r, ok := d.set.ByID(id)
	if !ok {
		return out, false, nil
	}
	if served, ok := d.set.Get(r.Origin, r.RoomID); !ok || served != r {
		return out, false, nil
	}
	row := r.Row()
	out = messages.Room{ID: id, Origin: r.Origin, RoomID: r.RoomID, Genesis: r.Genesis, URL: r.Origin + "/v1/rooms/" + r.RoomID, Base: d.roomBase(r),
		Last: row.Seq, Dropped: row.Dropped, Redacted: row.Withheld}
	listed, known := d.index.Room(r.Origin, r.RoomID)
	out.Shown = known && listed.Visibility == room.Public && !listed.Hidden
	if out.Shown && r.Origin != d.origin {
		_, hidden := d.mirror.Hidden(r)
		out.Shown = !hidden
	}
	if row.Withheld > 0 {
		list, err := r.Withholdings()
		if err != nil {
			return out, false, err
		}
		sum := sha256.New()
		for _, w := range list {
			fmt.Fprintln(sum, w.Seq)
		}
		if len(list) > 0 {
			out.Withheld = hex.EncodeToString(sum.Sum(nil)[:8])
		}
	}
	return out, true, nil
}

// roomBase is where our own API has a room.
func (d *daemon) roomBase(r *replica.Replica) string {
	if r.Origin == d.origin {
		return d.origin + "/v1/rooms/" + r.RoomID
	}
	return d.origin + "/m/" + url.PathEscape(authority(r.Origin)) + "/v1/rooms/" + r.RoomID
}

// findRoom finds the room that a reader names by its URL at its host, or by its URL here.
func (d *daemon) findRoom(name string) (uint64, error) {
	if id, ok := strings.CutPrefix(name, d.origin+"/v1/rooms/"); ok {
		if r, ok := d.set.Get(d.origin, id); ok {
			return r.ID, nil
		}
	} else if r, err := d.mirror.Room(name); err == nil {
		return r.ID, nil
	}
	return 0, adp.Errorf(adp.RoomNotFound, "no room %.300q is held here; give the url of a room as /v1/index/rooms lists it", name).With("parameter", "room")
}

// Rebuilt is what a rebuild of the index did.
type Rebuilt struct {
	Rooms    int   `json:"rooms"`    // listed
	Removed  int   `json:"removed"`  // that were listed and are not held
	Texts    int   `json:"texts"`    // of rooms, written again
	Messages int64 `json:"messages"` // written again
	TookMS   int64 `json:"took_ms"`
}

// rebuildIndex drops all that is derived for searching and derives it again. What
// hosts say of rooms that are not copied comes from the store like the rest.
func (d *daemon) rebuildIndex(ctx context.Context) (out Rebuilt, err error) {
	began := time.Now()
	for _, l := range d.index.Listed() {
		if _, held := d.set.Get(l.Origin, l.RoomID); !held && !(l.MetadataOnly && d.mirror.SeenAt(l.Origin, l.RoomID) > 0) {
			d.unlisted(l.Origin, l.RoomID)
			out.Removed++
		}
	}
	var ids []uint64
	for _, r := range d.set.All() {
		if served, ok := d.set.Get(r.Origin, r.RoomID); ok && served == r && r.Row().Seq > 0 {
			d.reindex(r)
			ids = append(ids, r.ID)
		}
		if err := ctx.Err(); err != nil {
			return out, err
		}
	}
	if err := d.mirror.Relist(); err != nil {
		return out, err
	}
	out.Rooms = d.index.Len()
	if out.Texts, err = d.index.Rebuild(ctx); err != nil {
		return out, err
	}
	if d.messages != nil {
		if out.Messages, err = d.messages.Rebuild(ctx, ids); err != nil {
			return out, err
		}
	}
	out.TookMS = time.Since(began).Milliseconds()
	return out, nil
}

func (d *daemon) indexRoutes(mux *web.Mux) {
	mux.Handle("POST", "/index/rebuild", func(w http.ResponseWriter, r *http.Request) error {
		out, err := d.rebuildIndex(r.Context())
		if err != nil {
			return err
		}
		if said, err := json.Marshal(out); err == nil {
			d.log.Info("the index was built again by the operator", "did", string(said))
		}
		web.WriteJSON(w, http.StatusOK, out)
		return nil
	})
}
