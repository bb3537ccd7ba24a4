package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/p2p"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// What the store remembers of peers.
const (
	metaPeerLists = "p2p.lists" // what the operator allowed and blocked while the daemon ran
	metaPeerBook  = "p2p.book"
)

// peerLists are the lists of the settings, and those that the operator changes while the
// daemon runs.
type peerLists struct {
	mu    sync.Mutex
	added struct {
		Allow []string `json:"allow"`
		Block []string `json:"block"`
	}
}

// Peers is what the operator sees.
type Peers struct {
	Allow []string         `json:"allow"`
	Block []string         `json:"block"`
	Peers []p2p.PeerStatus `json:"peers"`
}

// readMeta reads a value of the daemon that is kept as JSON; out stays as it is when
// there is none.
func (d *daemon) readMeta(name string, out any) error {
	raw, ok, err := d.st.Get(store.Meta(name))
	if err == nil && ok {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

func (d *daemon) writeMeta(name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b store.Batch
	b.Put(store.Meta(name), raw)
	return d.st.Commit(&b)
}

// keepBook remembers where peers were found.
func (d *daemon) keepBook(book []p2p.KnownPeer) {
	if err := d.writeMeta(metaPeerBook, book); err != nil {
		d.log.Warn("the address book of peers could not be stored", "error", err)
	}
}

// lists are both together. peers.mu is held.
func (d *daemon) lists() p2p.Lists {
	both := func(a, b []string) []string {
		out := slices.Concat(a, b)
		slices.Sort(out)
		return slices.Compact(out)
	}
	return p2p.Lists{Allow: both(d.cfg.P2P.Allow, d.peers.added.Allow), Block: both(d.cfg.P2P.Block, d.peers.added.Block)}
}

// changeLists allows or blocks a peer, or takes that back, over restarts.
func (d *daemon) changeLists(list, id string, remove bool) error {
	d.peers.mu.Lock()
	defer d.peers.mu.Unlock()
	before := d.peers.added
	added, settings := &d.peers.added.Allow, d.cfg.P2P.Allow
	if list == "block" {
		added, settings = &d.peers.added.Block, d.cfg.P2P.Block
	}
	at := slices.Index(*added, id)
	switch {
	case remove && at >= 0:
		*added = slices.Delete(slices.Clone(*added), at, at+1)
	case remove && slices.Contains(settings, id):
		return adp.Errorf(adp.InvalidRequest, "%s stands in p2p.%s of the settings: take it out there and start again", id, list)
	case remove:
		return adp.Errorf(adp.NotFound, "%s is not on the %s list", id, list)
	case at < 0 && !slices.Contains(settings, id):
		*added = append(slices.Clone(*added), id)
	default:
		return nil
	}
	err := d.node.SetLists(d.lists()) // it knows what a peer ID is
	if err != nil {
		err = adp.Errorf(adp.InvalidRequest, "%v", err)
	} else {
		err = d.writeMeta(metaPeerLists, d.peers.added)
	}
	if err != nil {
		d.peers.added = before
		if again := d.node.SetLists(d.lists()); again != nil {
			d.log.Error("the lists of peers could not be put back", "error", again)
		}
	}
	return err
}

// peerRoutes are the operator's commands about peers.
func (d *daemon) peerRoutes(mux *web.Mux) {
	show := func(w http.ResponseWriter) error {
		if d.node == nil {
			return adp.Errorf(adp.NotFound, "p2p is off (p2p.enabled): there are no peers")
		}
		d.peers.mu.Lock()
		l := d.lists()
		d.peers.mu.Unlock()
		web.WriteJSON(w, http.StatusOK, Peers{l.Allow, l.Block, d.node.Status()})
		return nil
	}
	mux.Handle("GET", "/p2p/peers", func(w http.ResponseWriter, _ *http.Request) error { return show(w) })
	for _, list := range []string{"allow", "block"} {
		mux.Handle("POST", "/p2p/"+list, func(w http.ResponseWriter, r *http.Request) error {
			var body struct {
				Peer   string `json:"peer"`
				Remove bool   `json:"remove"`
			}
			if err := adminBody(w, r, &body); err != nil {
				return err
			}
			if d.node == nil {
				return show(w)
			}
			if err := d.changeLists(list, body.Peer, body.Remove); err != nil {
				return err
			}
			d.log.Info("peers changed by the operator", "list", list, "peer", body.Peer, "removed", body.Remove)
			return show(w)
		})
	}
}
