package daemon

import (
	"encoding/json"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/tilelog"
	"github.com/witan-adp/witan/witness"
)

// A mirror without a single peer reads the log of the host: so it knows what the host
// has signed, attests with it, and can prove it when the host is gone.
func TestMirrorReadsTheLog(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}, change: func(c *config.Config) { c.P2P.Enabled, c.Mirror.PollMax = false, config.Duration(time.Second) }})
	creator := newAgent(t)
	id := a.create(creator, nil)
	a.act(creator, id, "room.close", map[string]any{"reason": "done"})
	query := "?origin=" + url.QueryEscape(a.origin) + "&room_id=" + id
	var said []struct{ Hash string }
	var attested []json.RawMessage
	until(t, "the statement and the attestation", func() bool {
		b.call("GET", "/v1/witness/statements"+query, nil, &said)
		b.call("GET", "/v1/witness/attestations"+query, nil, &attested)
		return len(said) == 1 && len(attested) == 1
	})
	if !strings.Contains(string(attested[0]), `"statement":"`+said[0].Hash+`"`) {
		t.Errorf("attested without the statement: %s", attested[0])
	}
	var hosts []struct {
		Origin string
		Log    witness.TailStatus
	}
	want := witness.TailStatus{Log: authority(a.origin) + "/witan", Size: 1, Read: 1}
	until(t, "the log to be read", func() bool {
		b.call("GET", "/federation/v1/hosts", nil, &hosts)
		return len(hosts) == 1 && hosts[0].Log == want
	})
	a.stop()
	var p struct {
		Size       uint64
		Checkpoint string
	}
	if status, _, raw := b.call("GET", "/v1/witness/log-entry?hash="+said[0].Hash, nil, &p); status != 200 || p.Size != 1 || !strings.HasPrefix(p.Checkpoint, authority(a.origin)+"/witan\n1\n") {
		t.Errorf("%d %s", status, raw)
	}
}

// A log that could not be read is left alone for a while, unless there was a reason to look
// again since that look began.
func TestTailIsLookedAtAgain(t *testing.T) {
	tails, failed := newTailing(), errors.New("signed by no key that is bound")
	const host = "https://h.example"
	look := func(meanwhile func()) {
		t.Helper()
		if !tails.due(host) {
			t.Fatal("it is not looked at")
		}
		meanwhile()
		tails.done(host, time.Hour, failed)
	}
	look(func() { tails.now(host) })
	select {
	case <-tails.wake:
	default:
		t.Error("nobody is told")
	}
	look(func() {})
	if tails.due(host) {
		t.Error("it is looked at again at once")
	}
	tails.now(host)
	look(func() {})
	if tails.due(host) {
		t.Error("a reason from before the look counts after it")
	}
	tails.now(host)
	tails.forget(map[string]bool{})
	if len(tails.next)+len(tails.wait)+len(tails.soon) > 0 {
		t.Errorf("left behind: %v %v %v", tails.next, tails.wait, tails.soon)
	}
}

// A checkpoint of another log of a followed host, which somebody shows to our cosigner,
// is evidence; it shows wherever the host or a room of it is shown, also after a
// restart.
func TestTwoLogsShownToTheCosigner(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}, change: alone})
	a.end(t)
	ring, _, err := keys.Load(filepath.Join(a.data, "key"))
	if err != nil {
		t.Fatal(err)
	}
	signed := a.checkpoint(t, 1)
	line := authority(a.origin) + "/witan"
	other, err := tilelog.Checkpoint{Origin: line, Size: 1, Root: [32]byte{1}}.Sign(ring.Key(keys.Log))
	if err != nil {
		t.Fatal(err)
	}
	show := func(note []byte) int {
		status, _, _ := b.call("POST", "/witness/add-checkpoint", cosignature.Request{Note: note}.Text(), nil)
		return status
	}
	until(t, "the first log to be cosigned", func() bool { return show(signed) == 200 }) // once the key is bound
	if status := show(other); status != 409 {
		t.Fatalf("status %d", status)
	}
	for range 2 {
		until(t, "the evidence everywhere", func() bool {
			var hosts, rooms, evidence []map[string]any
			b.call("GET", "/federation/v1/hosts", nil, &hosts)
			b.call("GET", "/v1/index/rooms?host="+url.QueryEscape(a.origin), nil, &rooms)
			b.call("GET", "/v1/witness/evidence", nil, &evidence)
			proven := slices.ContainsFunc(evidence, func(e map[string]any) bool {
				return e["class"] == "proof" && e["kind"] == witness.KindCheckpoints && e["origin"] == a.origin
			})
			if len(hosts) != 1 || len(rooms) != 1 || !proven {
				return false
			}
			_, header, _ := b.call("GET", "/m/"+authority(a.origin)+"/v1/rooms/"+rooms[0]["room_id"].(string), nil, nil)
			return hosts[0]["equivocated"] == true && rooms[0]["attested"] == "equivocated" && header.Get("Witan-Host") == "equivocated"
		})
		port := b.port()
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b = start(t, setup{data: b.data, port: port, mirrors: []string{a.origin}, change: alone})
	}
}

// A host that begins a new log is followed into it: its new key is read as soon as a
// checkpoint is met that no known key has signed.
func TestMirrorFollowsIntoTheNewLog(t *testing.T) {
	a := start(t, setup{change: alone})
	b := start(t, setup{mirrors: []string{a.origin}, change: func(c *config.Config) { alone(c); c.Mirror.PollMax = config.Duration(time.Second) }})
	log := func(want witness.TailStatus) func() bool {
		return func() bool {
			var hosts []struct{ Log witness.TailStatus }
			b.call("GET", "/federation/v1/hosts", nil, &hosts)
			return len(hosts) == 1 && hosts[0].Log == want
		}
	}
	a.end(t)
	until(t, "the log to be read", log(witness.TailStatus{Log: authority(a.origin) + "/witan", Size: 1, Read: 1}))
	if status, text := a.operate("POST", "/log/new", nil, nil); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	a.end(t)
	until(t, "the new log to be read", log(witness.TailStatus{Log: authority(a.origin) + "/witan/2", Size: 2, Read: 2}))
	var evidence []json.RawMessage
	if b.call("GET", "/v1/witness/evidence", nil, &evidence); len(evidence) != 0 {
		t.Errorf("an honest host is accused: %s", evidence)
	}
}

// Two mirrors that were shown two logs of one host, of different sizes, and that never
// see the other one at the host, prove it as soon as they are peers.
func TestTwoLogsMeetAtPeers(t *testing.T) {
	soon := func(c *config.Config) { c.Mirror.PollMax = config.Duration(time.Second) }
	a := start(t, setup{change: alone})
	a.end(t)
	a.checkpoint(t, 1)
	port := a.port()
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	older := t.TempDir()
	copyFolder(t, a.data, older)
	a = start(t, setup{data: a.data, port: port, change: alone})
	a.end(t)
	b := start(t, setup{mirrors: []string{a.origin}, change: soon})
	read := func(d *running, size uint64) func() bool {
		return func() bool {
			var hosts []struct{ Log witness.TailStatus }
			d.call("GET", "/federation/v1/hosts", nil, &hosts)
			return len(hosts) == 1 && hosts[0].Log.Read == size
		}
	}
	until(t, "the first story to be read", read(b, 2))
	if status, text := b.operate("POST", "/mirror/pause", map[string]string{"origin": a.origin}, nil); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	a = start(t, setup{data: older, port: port, change: alone})
	a.end(t)
	a.end(t)
	a.checkpoint(t, 3)
	c := start(t, setup{mirrors: []string{a.origin}, peers: b.info.Peers[:1], change: soon})
	until(t, "the second story to be read", read(c, 3))
	if err := a.stop(); err != nil { // it has nothing to say to this
		t.Fatal(err)
	}
	for name, d := range map[string]*running{"who held the first": b, "who held the second": c} {
		until(t, "the proof at "+name, func() bool {
			var proofs []struct{ Class, Kind, Origin string }
			d.call("GET", "/v1/witness/evidence", nil, &proofs)
			for _, p := range proofs {
				if p.Class == "proof" && p.Kind == witness.KindInclusion && p.Origin == a.origin {
					return true
				}
			}
			return false
		})
	}
}
