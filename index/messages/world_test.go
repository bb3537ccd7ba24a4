package messages

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/index/text"
	"github.com/witan-adp/witan/internal/web"
)

const ownOrigin = "https://own.example"

// world is rooms as the daemon would tell of them.
type world struct {
	t     tester
	rooms map[uint64]*held
	store *text.Store
	x     *Index
	reads int
}

type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

type held struct {
	Room
	recs     [][]byte
	withheld map[int64]bool
}

func keyOf(i int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	binary.BigEndian.PutUint64(seed, uint64(i))
	return ed25519.NewKeyFromSeed(seed)
}

func agentOf(i int) string {
	return string(adp.NewAgentID(keyOf(i).Public().(ed25519.PublicKey)))
}

func (w *world) open(path string, most int64) {
	s, _, err := text.Open(path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.store = s
	w.x = New(Options{Cursors: web.NewCursors(make([]byte, 32)), Own: ownOrigin, Store: s, Most: most,
		Look: func(_ context.Context, id uint64) (Room, bool, error) {
			r, ok := w.rooms[id]
			if !ok {
				return Room{}, false, nil
			}
			out := r.Room
			out.Last, out.Redacted = int64(len(r.recs)), int64(len(r.withheld))
			out.Withheld = fmt.Sprint(slices.Sorted(maps.Keys(r.withheld)))
			if len(r.withheld) == 0 {
				out.Withheld = ""
			}
			return out, true, nil
		},
		Find: func(u string) (uint64, error) {
			for id, r := range w.rooms {
				if r.URL == u {
					return id, nil
				}
			}
			return 0, adp.Errorf(adp.RoomNotFound, "no such room")
		},
		Origins: func(s string) []string {
			if strings.Contains(s, " ") {
				return nil
			}
			return []string{s}
		},
		Scan: func(id uint64, after, last int64, fn func(int64, []byte) error) error {
			r := w.rooms[id]
			for seq := max(after, r.Dropped) + 1; seq <= min(last, int64(len(r.recs))); seq++ {
				raw, _, err := w.record(r, seq)
				if err == nil {
					err = fn(seq, raw)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
		Record: func(id uint64, seq int64) ([]byte, bool, error) {
			w.reads++
			r, ok := w.rooms[id]
			if !ok || seq <= r.Dropped || seq > int64(len(r.recs)) {
				return nil, false, nil
			}
			return w.record(r, seq)
		},
	})
}

func (w *world) record(r *held, seq int64) ([]byte, bool, error) {
	raw := r.recs[seq-1]
	if !r.withheld[seq] {
		return raw, true, nil
	}
	v, err := adp.ScanDepth(raw, adp.RecordDepth)
	if err != nil {
		return nil, false, err
	}
	rec, err := adp.ParseServed(v)
	if err != nil {
		return nil, false, err
	}
	cut, err := rec.Redact()
	if err != nil {
		return nil, false, err
	}
	return cut.JSON(), true, nil
}

func (w *world) room(id uint64, origin string) *held {
	name := fmt.Sprint("room", id)
	r := &held{Room: Room{ID: id, Origin: origin, RoomID: name, Genesis: "g", URL: origin + "/v1/rooms/" + name, Base: ownOrigin + "/v1/rooms/" + name, Shown: true}, withheld: map[int64]bool{}}
	w.rooms[id] = r
	return r
}

func (w *world) say(r *held, author int, at int64, typ string, payload any) {
	w.t.Helper()
	e, err := adp.Sign(keyOf(author), adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: at, Nonce: at, Payload: payload,
		RoomID: r.RoomID, BaseSeq: 1, BaseHash: adp.Encode(make([]byte, 32))})
	if err != nil {
		w.t.Fatal(err)
	}
	before := adp.Encode(make([]byte, 32))
	if len(r.recs) == 0 {
		before = ""
	}
	rec := adp.NewRecord(e, r.RoomID, int64(len(r.recs)+1), before, at)
	r.recs = append(r.recs, rec.JSON())
	w.x.Changed(r.ID)
}
