package mirror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
)

// ended closes a room and makes the manifest of its host; extra is beside what
// the records give.
func ended(t *testing.T, s *story, cids bool) (manifest, bundle []byte) {
	t.Helper()
	s.add(creator, room.Close, map[string]any{"reason": "done"})
	var d adp.Digest
	for _, r := range s.recs {
		d.Add(r)
	}
	m := adp.Manifest{Host: "plain.example", URL: "https://plain.example/v1/rooms/" + s.id, GeneratedAt: s.at + 77, Summary: d.Summary(),
		Room: json.RawMessage(`{"id":"` + s.id + `"}`), Extra: map[string]json.RawMessage{"note": json.RawMessage(`"by the host"`)}}
	line1, err := m.Line1()
	if err != nil {
		t.Fatal(err)
	}
	b := adp.NewBundle(line1)
	bundle = append(bytes.Clone(line1), '\n')
	for _, r := range s.recs {
		b.Add(r.JSON())
		bundle = append(append(bundle, r.JSON()...), '\n')
	}
	manifest, err = m.JSON(b)
	if err != nil {
		t.Fatal(err)
	}
	if !cids {
		manifest = bytes.Replace(manifest, []byte(`"bundle_cid"`), []byte(`"other_cid"`), 1)
	}
	return manifest, bundle
}

func (h *fakeHost) end(s *story, manifest []byte) {
	h.put(s)
	h.set(func() { h.rooms[s.id].status, h.rooms[s.id].manifest = string(room.Ended), manifest })
}

func (g *rig) completes(h *fakeHost, id string) {
	g.t.Helper()
	until(g.t, id+" is complete", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.row(h, id).State == replica.Complete && len(g.completed) > 0
	})
}

func TestArchiveIsAdopted(t *testing.T) {
	h, st := newFakeHost(t), memory(t)
	s := talk(t, "room", 6)
	manifest, bundle := ended(t, s, true)
	h.end(s, manifest)
	g := start(t, st, nil).follow(h)
	g.completes(h, "room")
	for range 2 { // also after a restart
		if resp, body := g.get(h, "/v1/rooms/room/archive.jsonl"); resp.StatusCode != 200 || body != string(bundle) {
			t.Errorf("bundle: %d, %.200q", resp.StatusCode, body)
		}
		if _, body := g.get(h, "/v1/rooms/room/archive"); body != string(manifest) {
			t.Errorf("manifest: %.200q", body)
		}
		if resp, body := g.get(h, "/v1/rooms/room/archive.md"); resp.StatusCode != 200 || !strings.Contains(body, "message 2") {
			t.Errorf("markdown: %d %.200q", resp.StatusCode, body)
		}
		g.stop()
		g = start(t, st, nil)
	}
	// what was archived does not grow
	s.say(member, "one more thing")
	h.put(s)
	row := g.becomes(h, "room", replica.ArchiveMismatch)
	if row.Seq != 7 || row.State != replica.Complete || len(g.seen()) != 1 {
		t.Errorf("%+v, observed %d", row, len(g.seen()))
	}
}

func TestArchiveIsMade(t *testing.T) {
	for name, c := range map[string]struct{ offered, routed bool }{"none yet": {false, true}, "no such route": {false, false}, "without a bundle": {true, true}} {
		t.Run(name, func(t *testing.T) {
			h := newFakeHost(t)
			s := talk(t, "room", 6)
			manifest, _ := ended(t, s, false)
			if !c.offered {
				manifest = nil
			}
			h.end(s, manifest)
			if !c.routed {
				h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == "/v1/rooms/room/archive" {
						refuse(w, 404, "not_found")
						return true
					}
					return false
				})
			}
			g := start(t, memory(t), nil).follow(h)
			g.completes(h, "room")
			_, body := g.get(h, "/v1/rooms/room/archive")
			claim, err := adp.ParseClaim([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			if claim.GeneratedAt != s.recs[6].ReceivedAt || claim.Count != 7 || claim.BundleCID == "" || claim.URL != h.origin()+"/v1/rooms/room" {
				t.Errorf("%+v", claim)
			}
		})
	}
}

func TestArchiveMismatch(t *testing.T) {
	for _, cids := range []bool{true, false} {
		h := newFakeHost(t)
		s := talk(t, "room", 6)
		manifest, _ := ended(t, s, cids)
		sum := adp.Encode(make([]byte, 32))
		claim, err := adp.ParseClaim(manifest)
		if err != nil {
			t.Fatal(err)
		}
		h.end(s, bytes.Replace(manifest, []byte(claim.EventsDigest), []byte(sum), 1))
		g := start(t, memory(t), func(o *Options) {}).follow(h)
		row := g.becomes(h, "room", replica.ArchiveMismatch)
		if row.State == replica.Complete || row.Archived || !strings.Contains(row.Reason, "events_sha3_256") {
			t.Errorf("%+v", row)
		}
		g.looks(h, 3)
		if seen := g.seen(); len(seen) != 1 || seen[0].Kind != KindArchiveMismatch {
			t.Errorf("observed: %+v", seen)
		}
		h.end(s, manifest)
		if err := g.m.Retry(h.origin()); err != nil {
			t.Fatal(err)
		}
		g.completes(h, "room")
		if row := g.row(h, "room"); row.EffectiveVerdict() != replica.Verified || row.Reason != "" {
			t.Errorf("after the right one: %+v", row)
		}
	}
}

// A host whose archive is of no use, or never comes, does not keep the room from ending
// here: it is made from the records.
func TestArchiveThatCannotBeRead(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"too large": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "99999999999") },
		"a page": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>")
		},
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:2/archive", http.StatusFound)
		},
		"cut short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "{")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFakeHost(t)
			s := talk(t, "room", 6)
			ended(t, s, false)
			h.end(s, nil)
			h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/v1/rooms/room/archive" {
					return false
				}
				w.Header().Set("Content-Type", apiType)
				answer(w, r)
				return true
			})
			g := start(t, memory(t), nil).follow(h)
			g.completes(h, "room")
			if n := h.count("/v1/rooms/room/archive"); n > slowArchive+looksForArchive {
				t.Errorf("it was asked for the archive %d times", n)
			}
		})
	}
}
