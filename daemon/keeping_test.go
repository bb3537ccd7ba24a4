package daemon

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/config"
)

// command is an operator's command that must work.
func (d *running) command(path string, body obj) {
	d.t.Helper()
	if status, raw := d.operate("POST", path, body, nil); status != 200 {
		d.t.Fatalf("%s: %d %s", path, status, raw)
	}
}

type obj = map[string]any

// replayed verifies the records of a room as a daemon serves them.
func (d *running) replayed(t *testing.T, base, id string) *room.Verifier {
	t.Helper()
	var recs []json.RawMessage
	if status, _, raw := d.call("GET", base+"/events?limit=1000", nil, &recs); status != 200 {
		t.Fatalf("%s: %d %s", base, status, raw)
	}
	v := room.NewVerifier(id, nil)
	i := 0
	err := room.VerifyAll(t.Context(), func() ([]byte, error) {
		if i == len(recs) {
			return nil, io.EOF
		}
		i++
		return recs[i-1], nil
	}, v, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What an operator takes down at the host is gone for every reader there, and for
// every mirror that had not read it yet; a mirror that had keeps it until its own
// operator decides.
func TestTakedown(t *testing.T) {
	for _, fate := range []string{config.WithheldSeal, config.WithheldErase} {
		t.Run(fate, func(t *testing.T) {
			configure := func(c *config.Config) { c.Host.Withheld, c.Mirror.Withheld = fate, fate }
			a := start(t, setup{change: configure})
			early := start(t, setup{mirrors: []string{a.origin}, peers: a.info.Peers[:1], change: configure})
			creator, speaker := newAgent(t), newAgent(t)
			id := a.create(creator, nil)
			a.act(speaker, id, "room.join", obj{"role": "speaker"})
			a.act(speaker, id, "message.create", text("the address is 12 Harbour Road"))
			a.act(creator, id, "message.create", text("please do not"))
			own, mirrored := "/v1/rooms/"+id, "/m/"+authority(a.origin)+"/v1/rooms/"+id
			until(t, "the early mirror to hold all", func() bool {
				var recs []json.RawMessage
				status, _, _ := early.call("GET", mirrored+"/events", nil, &recs)
				return status == 200 && len(recs) == 4
			})

			for seq, want := range map[int]string{1: "room.create", 2: "room.join", 9: "there is no seq 9"} {
				if status, raw := a.operate("POST", "/host/withhold", obj{"room": id, "seq": seq, "reason": "x"}, nil); status != 400 || !strings.Contains(raw, want) {
					t.Errorf("seq %d: %d %s", seq, status, raw)
				}
			}
			a.command("/host/withhold", obj{"room": a.origin + own, "seq": 3, "reason": "a home address"})
			late := start(t, setup{mirrors: []string{a.origin}, change: configure})
			until(t, "the late mirror to hold all", func() bool {
				var recs []json.RawMessage
				status, _, _ := late.call("GET", mirrored+"/events", nil, &recs)
				return status == 200 && len(recs) == 4
			})
			shows := func(d *running, base string) bool {
				_, _, raw := d.call("GET", base+"/events", nil, nil)
				return bytes.Contains(raw, []byte("Harbour Road"))
			}
			if shows(a, own) || shows(late, mirrored) || !shows(early, mirrored) {
				t.Error("the record is not where it should be")
			}
			if v := late.replayed(t, mirrored, id); v.Counts[room.Withheld] != 1 || v.Counts[room.Allowed] != 3 {
				t.Errorf("%v", v.Counts)
			}
			_, header, _ := late.call("GET", mirrored+"/events", nil, nil)
			if header.Get("Witan-Verdict") != "verified" || header.Get("Witan-Withheld") != "1" {
				t.Errorf("%v", header)
			}
			until(t, "the index of the late mirror to tell of it", func() bool {
				var found []obj
				late.call("GET", "/v1/index/rooms?host="+url.QueryEscape(a.origin), nil, &found)
				return len(found) == 1 && found[0]["withheld"] == 1.0 && found[0]["verdict"] == "verified"
			})

			// the room goes on, and its archive is of what was said
			a.act(creator, id, "message.create", text("thanks"))
			a.act(creator, id, "room.close", obj{"reason": "done"})
			query := "?origin=" + url.QueryEscape(a.origin) + "&room_id=" + id
			until(t, "the statement of the host and the attestation of the early mirror", func() bool {
				var s, at []json.RawMessage
				a.call("GET", "/v1/witness/statements"+query, nil, &s)
				early.call("GET", "/v1/witness/attestations"+query, nil, &at)
				return len(s) == 1 && len(at) == 1
			})
			until(t, "the late mirror to complete the room", func() bool {
				var found []obj
				late.call("GET", "/v1/index/rooms?host="+url.QueryEscape(a.origin), nil, &found)
				return len(found) == 1 && found[0]["state"] == "complete"
			})
			_, _, manifest := a.call("GET", own+"/archive", nil, nil)
			claim, err := adp.ParseClaim(manifest)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, copied := late.call("GET", mirrored+"/archive", nil, nil); !bytes.Equal(copied, manifest) {
				t.Errorf("the late mirror has another manifest: %.300s", copied)
			}
			whole := early.replayed(t, mirrored, id).Digest.Summary()
			if err := claim.Check(whole); err != nil || whole.Withheld != 0 {
				t.Errorf("the manifest against the originals: %v", err)
			}
			cut := a.replayed(t, own, id).Digest.Summary()
			if err := claim.Check(cut); err != nil || cut.Withheld != 1 {
				t.Errorf("the manifest against what is served: %v", err)
			}
			for _, d := range []struct {
				*running
				base string
			}{{a, own}, {late, mirrored}} {
				_, header, jsonl := d.call("GET", d.base+"/archive.jsonl", nil, nil)
				if bytes.Contains(jsonl, []byte("Harbour Road")) || header.Get("Witan-Withheld") != "1" {
					t.Errorf("archive.jsonl of %s", d.base)
				}
				if _, _, md := d.call("GET", d.base+"/archive.md", nil, nil); bytes.Contains(md, []byte("Harbour Road")) || !bytes.Contains(md, []byte("withheld")) {
					t.Errorf("archive.md of %s", d.base)
				}
			}
			var attested []json.RawMessage
			if late.call("GET", "/v1/witness/attestations"+query, nil, &attested); len(attested) > 0 && bytes.Contains(attested[0], []byte(late.info.AgentID)) {
				t.Error("a mirror attests what it could not recompute")
			}

			// the early mirror's own operator, by the room's URL here
			early.command("/mirror/withhold", obj{"room": early.origin + mirrored, "seq": 3, "reason": "asked"})
			if shows(early, mirrored) {
				t.Error("the mirror shows what its operator withholds")
			}
			port := early.port()
			if err := early.stop(); err != nil {
				t.Fatal(err)
			}
			early = start(t, setup{data: early.data, port: port, change: configure})
			if shows(early, mirrored) {
				t.Error("a restart shows it again")
			}
			var list []obj
			if early.operate("GET", "/mirror/withheld?room="+url.QueryEscape(a.origin+own), nil, &list); len(list) != 1 || list[0]["reason"] != "asked" {
				t.Errorf("%v", list)
			}
			status, raw := early.operate("POST", "/mirror/show", obj{"room": a.origin + own, "seq": 3}, nil)
			if sealed := fate == config.WithheldSeal; sealed != (status == 200) || sealed != shows(early, mirrored) {
				t.Errorf("%s, then shown again: %d %s", fate, status, raw)
			}
			status, raw = a.operate("POST", "/host/show", obj{"room": id, "seq": 3}, nil)
			if sealed := fate == config.WithheldSeal; sealed != (status == 200) || sealed != shows(a, own) {
				t.Errorf("%s, then shown again by the host: %d %s", fate, status, raw)
			}
		})
	}
}

// The status says where each host came from, and what the operator did holds over a
// restart.
func TestSourcesOfHosts(t *testing.T) {
	a, b, c := start(t, setup{}), start(t, setup{}), start(t, setup{})
	m := start(t, setup{mirrors: []string{a.origin, b.origin}, flags: []string{b.origin}})
	m.command("/mirror/add", obj{"origin": c.origin})
	m.command("/mirror/pause", obj{"origin": a.origin})
	sources := func(d *running) map[string]string {
		t.Helper()
		var hosts []struct{ Origin, Source, State string }
		if status, raw := d.operate("GET", "/mirror/status", nil, &hosts); status != 200 {
			t.Fatal(raw)
		}
		out := map[string]string{}
		for _, h := range hosts {
			out[h.Origin] = h.Source
			if h.State == "paused" || h.State == "removed" {
				out[h.Origin] += " " + h.State
			}
		}
		return out
	}
	want := map[string]string{a.origin: "config paused", b.origin: "flag", c.origin: "runtime"}
	if got := sources(m); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	m.command("/mirror/remove", obj{"origin": b.origin})
	port := m.port()
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	m = start(t, setup{data: m.data, port: port, mirrors: []string{a.origin, b.origin}, flags: []string{b.origin}})
	want[b.origin] = "flag removed"
	if got := sources(m); !maps.Equal(got, want) {
		t.Errorf("after a restart: %v", got)
	}
}

// A room that asks not to be mirrored is listed by the index of a mirror, and no
// more.
func TestOptOutIsListed(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}})
	id := a.create(newAgent(t), obj{"policy": obj{"extra": obj{"mirror": false}}})
	until(t, "the index of the mirror to list it", func() bool {
		var found []obj
		b.call("GET", "/v1/index/rooms?host="+url.QueryEscape(a.origin), nil, &found)
		return len(found) == 1 && found[0]["room_id"] == id && found[0]["state"] == "paused" && strings.Contains(found[0]["reason"].(string), "not to be mirrored")
	})
	if status, _, raw := b.call("GET", "/m/"+authority(a.origin)+"/v1/rooms/"+id+"/events", nil, nil); status != 404 {
		t.Errorf("its events: %d %s", status, raw)
	}
}
