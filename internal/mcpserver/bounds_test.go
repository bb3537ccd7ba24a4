package mcpserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/inspect/inspecttest"
	"github.com/witan-adp/witan/internal/plaintext"
)

// mostBytes is more than any answer takes, text and structured content together.
const mostBytes = 512 << 10

// The worst that somebody can write, as far as its size once it is escaped is concerned.
var costly = map[string]string{"controls": "\x01", "tags": "\U000e0041", "quotes": `"`}

// huge is a room in which everything is as large as can be, with so many types and members.
func huge(unit string, types, members int) *inspecttest.Builder {
	long := func(n int) string { return strings.Repeat(unit, n/len(unit)) }
	b := &inspecttest.Builder{}
	var declared []any
	for i := range types {
		declared = append(declared, fields{"type": fmt.Sprintf("t%03d.%s", i, strings.Repeat("x", 60)), "kind": "signal", "title": long(400), "description": long(4000), "schema": fields{"type": "object"}})
	}
	b.Add(inspecttest.Key(1), room.Create, fields{"topic": long(60_000), "agenda": long(60_000), "guidance": long(60_000), "visibility": "public", "start_time": inspecttest.Start, "end_time": inspecttest.End,
		"tags": []string{long(2000), long(2000)}, "policy": fields{"extra": fields{"x": long(30_000)}}, "extra": fields{long(100): long(30_000)}, "types": declared})
	for i := range members {
		b.Add(inspecttest.Key(byte(2+i)), room.Join, fields{"role": "observer", "perspective": long(3000)})
	}
	var hashes []string
	for range 400 {
		hashes = append(hashes, adp.Encode(make([]byte, 32)))
	}
	for i := range 4 {
		b.Add(inspecttest.Key(byte(1+i%2)), room.Message, fields{"content_type": long(1000), "content": long(60_000), "references": hashes})
		b.Add(inspecttest.Key(1), "no.such", fields{long(200): long(15_000), "references": hashes})
	}
	return b
}

// listing answers with many rooms, hosts, messages and signatures about the room that h serves.
func listing(h http.Handler, unit string) http.Handler {
	long := strings.Repeat(unit, 2000/len(unit))
	page := func(n int, entry func(i int) fields) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			list := []fields{}
			for i := range n {
				list = append(list, entry(i))
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(list)
		}
	}
	var types []string
	for i := range 64 {
		types = append(types, fmt.Sprintf("t%02d.%s", i, strings.Repeat("x", 90)))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/index/rooms", page(50, func(i int) fields {
		return fields{"origin": daemonOrigin, "room_id": fmt.Sprintf("room%016d", i), "topic": long, "agenda": long, "guidance": long, "tags": []string{long, long, "t"}, "reason": long, "types": types, "language": long}
	}))
	mux.HandleFunc("GET /v1/index/events", page(50, func(i int) fields {
		return fields{"origin": daemonOrigin, "room_id": inspecttest.RoomID, "seq": i, "snippet": long, "type": types[0]}
	}))
	mux.HandleFunc("GET /federation/v1/hosts", page(250, func(i int) fields {
		return fields{"origin": fmt.Sprintf("https://h%03d.example", i), "state": "gone", "reason": long}
	}))
	mux.HandleFunc("GET /federation/v1/self", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{}")
	})
	for _, kind := range vouching {
		mux.HandleFunc("GET /v1/witness/"+kind, func(w http.ResponseWriter, r *http.Request) {
			if after := r.URL.Query().Get("cursor"); after == "" {
				w.Header().Set("Link", "<"+daemonOrigin+r.URL.Path+"?cursor=second>; rel=\"next\"")
			} else if after != "second" {
				w.WriteHeader(400)
			}
			page(30, func(i int) fields { return fields{"class": "proof", "kind": kind, "x": i} })(w, r)
		})
	}
	mux.Handle("/", h)
	return mux
}

// No answer is larger than what a model can be given, whatever somebody wrote, and what was left out is told.
func TestAnswersAreBounded(t *testing.T) {
	for name, unit := range costly {
		t.Run(name, func(t *testing.T) {
			s := session(t, near(listing(huge(unit, 16, 8).Serve(), unit)))
			for tool, args := range map[string]fields{"search_rooms": {"limit": 50}, "search_messages": {"query": "x", "limit": 50}, "read_room": {"room": inspecttest.RoomID, "members": true},
				"read_history": {"room": inspecttest.RoomID, "limit": 100}, "list_hosts": {}, "verify_room": {"room": inspecttest.RoomID}, "get_attestations": {"room": inspecttest.RoomID}} {
				r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
				if err != nil || r.IsError {
					t.Fatalf("%s: %v %v", tool, err, r.Content[0].(*mcp.TextContent).Text)
				}
				raw, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				if len(raw) > mostBytes {
					t.Errorf("%s: %d bytes", tool, len(raw))
				}
			}
			_, u, _ := call(t, s, "search_rooms", fields{"limit": 50}, "")
			first := u["content"].([]any)[0].(fields)
			if first["cut"] != true || first["topic"] == "" {
				t.Errorf("search_rooms says nothing of what it left out: %v", first)
			}
			if _, u, _ = call(t, s, "read_room", fields{"room": inspecttest.RoomID}, ""); u["content"].(fields)["cut"] != true {
				t.Error("read_room says nothing of what it left out")
			}
		})
	}
}

// Whatever is too long for one answer goes on at a cursor, and nothing is lost or told twice.
func TestLongListsGoOn(t *testing.T) {
	b := huge("世", 150, 210)
	s := session(t, near(listing(b.Serve(), "世")))
	seen := map[string]bool{}
	once := func(name string) {
		t.Helper()
		if seen[name] {
			t.Errorf("%s was told twice", name)
		}
		seen[name] = true
	}
	follow := func(tool string, args fields, name, next string, take func(facts, content fields)) {
		t.Helper()
		for pages := 1; ; pages++ {
			facts, u, _ := call(t, s, tool, args, "")
			content, _ := u["content"].(fields)
			take(facts, content)
			if facts[next] == nil {
				if pages < 2 {
					t.Errorf("%s: %d pages", tool, pages)
				}
				return
			}
			args[name] = facts[next]
		}
	}
	follow("read_room", fields{"room": inspecttest.RoomID}, "after_type", "next_after_type", func(facts, content fields) {
		names, declared := facts["types"].([]any), content["types"].([]any)
		if len(names) != len(declared) {
			t.Errorf("%d names of %d types", len(names), len(declared))
		}
		for _, n := range names {
			once(n.(string))
		}
	})
	if len(seen) != 150 {
		t.Errorf("%d types", len(seen))
	}
	clear(seen)
	follow("read_room", fields{"room": inspecttest.RoomID, "members": true}, "after_member", "next_after_member", func(facts, content fields) {
		for _, m := range facts["members"].([]any) {
			once(m.(fields)["agent"].(string))
		}
	})
	if len(seen) != 211 {
		t.Errorf("%d members", len(seen))
	}
	clear(seen)
	follow("list_hosts", fields{}, "after", "next_after", func(facts, _ fields) {
		for _, h := range facts["hosts"].([]any) {
			once(h.(fields)["origin"].(string))
		}
	})
	if len(seen) != 250 {
		t.Errorf("%d hosts", len(seen))
	}
	signed, evidence := 0, 0
	follow("get_attestations", fields{"room": inspecttest.RoomID}, "cursor", "next_cursor", func(facts, _ fields) {
		signed += len(facts["signed"].([]any))
		evidence += len(facts["evidence"].([]any))
	})
	if signed != 120 || evidence != 60 {
		t.Errorf("%d signed, %d pieces of evidence", signed, evidence)
	}
	seqs := 0
	for after := 0.0; ; {
		facts, _, _ := call(t, s, "read_history", fields{"room": inspecttest.RoomID, "after_seq": after, "limit": 100}, "")
		for _, r := range facts["records"].([]any) {
			if seqs++; r.(fields)["seq"] != float64(seqs) {
				t.Fatalf("record %d is %v", seqs, r)
			}
		}
		if after = facts["next_after_seq"].(float64); facts["more"] == false {
			break
		}
	}
	if seqs != len(b.Records) {
		t.Errorf("%d records of %d", seqs, len(b.Records))
	}
	call(t, s, "read_room", fields{"room": inspecttest.RoomID, "after_type": "no.such"}, "leave after_type out")
	call(t, s, "get_attestations", fields{"room": inspecttest.RoomID, "cursor": "bogus:x"}, "leave it out")
}

func FuzzClip(f *testing.F) {
	f.Add("añ\u202e中", 3)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if n < 0 || n > 1000 {
			return
		}
		shown, cut := clip(s, n)
		if len(shown) > n || !cut && shown != plaintext.Text(s) || cut && len(plaintext.Text(s)) <= n {
			t.Fatalf("clip(%q, %d) = %q, %v", s, n, shown, cut)
		}
		if got := plaintext.Text(shown); got != shown {
			t.Fatalf("clip(%q, %d) = %q is not plain: %q", s, n, shown, got)
		}
		if w := word(s); w != "?" && w != s || strings.ContainsAny(w, " \n\"") {
			t.Fatalf("word(%q) = %q", s, w)
		}
	})
}
