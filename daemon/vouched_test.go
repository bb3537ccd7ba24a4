package daemon

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/p2p"
	"github.com/witan-adp/witan/witness"
)

// A host is gone for good. Mirrors that knew its key get its rooms from another mirror, as
// far as that key has signed for them: a statement about an archive, or a head. One that
// hears of no signature copies nothing, and says why.
func TestRoomsOfADeadHost(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}, peers: a.info.Peers[:1]})
	via := func(c *config.Config) {
		c.Mirror.Hosts = []config.MirrorHost{{URL: a.origin, Via: []string{b.origin}}}
	}
	alone := func(c *config.Config) { via(c); c.P2P.Enabled = false }
	creator, speaker := newAgent(t), newAgent(t)
	partial := a.create(creator, nil)
	c, d := start(t, setup{change: via}), start(t, setup{change: alone})
	path := "/m/" + authority(a.origin) + "/v1/rooms/"
	count := func(d *running, id string) int {
		var recs []json.RawMessage
		d.call("GET", path+id+"/events", nil, &recs)
		return len(recs)
	}
	for _, d := range []*running{c, d} {
		until(t, "a mirror to know the host, its key, and the beginning of a room", func() bool { return count(d, partial) == 1 })
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
	}

	over, open := a.create(creator, nil), a.create(creator, nil)
	for _, id := range []string{over, open, partial} {
		a.act(speaker, id, "room.join", map[string]any{"role": "speaker"})
		a.act(speaker, id, "message.create", text("before the end"))
	}
	a.act(creator, over, "room.close", map[string]any{"reason": "done"})
	want := map[string]int{over: 4, open: 3, partial: 3}
	signed := b.heads(t)
	until(t, "the first mirror to hold all, and the statement", func() bool {
		var s []json.RawMessage
		b.call("GET", "/v1/witness/statements?origin="+url.QueryEscape(a.origin), nil, &s)
		return len(s) == 1 && count(b, over) == 4 && count(b, open) == 3 && count(b, partial) == 3
	})
	until(t, "the first mirror to have the heads of what goes on", func() bool { // records can come without them
		to := signed()
		return to[open] == 3 && to[partial] == 3
	})
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}

	c = start(t, setup{data: c.data, port: c.port(), peers: b.info.Peers[:1], change: via})
	for id, n := range want {
		until(t, "the second mirror to have what is signed for", func() bool { return count(c, id) == n })
		_, _, ours := c.call("GET", path+id+"/events", nil, nil)
		if _, _, theirs := b.call("GET", path+id+"/events", nil, nil); string(ours) != string(theirs) {
			t.Error("it serves other records")
		}
	}

	until(t, "the second mirror to make the archive of what is over, and to attest it", func() bool {
		var at []json.RawMessage
		status, _, _ := c.call("GET", path+over+"/archive.jsonl", nil, nil)
		c.call("GET", "/v1/witness/attestations?origin="+url.QueryEscape(a.origin)+"&room_id="+over, nil, &at)
		return status == 200 && strings.Contains(fmt.Sprintf("%s", at), c.info.AgentID)
	})
	if status, _, _ := c.call("GET", path+open+"/archive.jsonl", nil, nil); status != 409 {
		t.Errorf("the archive of a room that goes on: %d", status)
	}

	d = start(t, setup{data: d.data, port: d.port(), change: alone})
	until(t, "a mirror without a signature to say why it copies nothing", func() bool {
		var report []struct {
			Problems []struct {
				RoomID string `json:"room_id"`
				Reason string `json:"reason"`
			} `json:"problems"`
		}
		d.operate("GET", "/mirror/status?origin="+url.QueryEscape(a.origin), nil, &report)
		said := 0
		for _, p := range report[0].Problems {
			if strings.Contains(p.Reason, b.origin) && strings.Contains(p.Reason, "no key of the host has signed") && want[p.RoomID] > 0 {
				said++
			}
		}
		return said == len(want)
	})
	if count(d, partial) != 1 || count(d, over) != 0 || count(d, open) != 0 {
		t.Error("unsigned records are served")
	}
}

// heads tells how far the heads go that a daemon shows to its peers, by room.
func (d *running) heads(t *testing.T) func() map[string]int64 {
	t.Helper()
	peer := d.peer(t, func(*p2p.Node) {})
	until(t, "the peer to be connected", func() bool { return len(peer.Peers()) > 0 })
	return func() map[string]int64 {
		raw, err := peer.Request(t.Context(), peer.Peers()[0], witness.ProtocolSync, []byte(`{"after":"","checkpoint":"","limit":1}`), witness.MaxSyncResponse)
		if err != nil {
			t.Fatal(err)
		}
		v, err := adp.Scan(raw)
		if err != nil {
			t.Fatal(err)
		}
		to := map[string]int64{}
		for seen := range v.Get("seen").Elements() {
			if e, err := adp.ParseEnvelope(seen); err == nil { // else it is a checkpoint
				seq, _ := e.Payload.Get("seq").Int()
				id := e.Payload.Get("room_id").Text()
				to[id] = max(to[id], seq)
			}
		}
		return to
	}
}
