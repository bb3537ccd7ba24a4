package mirror

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/replica"
)

// faulty is one host with a fault, and two good rooms beside the bad one.
type faulty struct {
	t    *testing.T
	h    *fakeHost
	g    *rig
	bad  *story
	good []*story
	slow map[string]http.HandlerFunc // by path; answers that take their time
	spin int
}

// ServeHTTP lets slow answers run beside the others.
func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if answer := f.slow[r.URL.Path]; answer != nil {
		f.h.mu.Lock()
		f.h.asked[r.RequestURI]++
		f.h.mu.Unlock()
		answer(w, r)
		return
	}
	f.h.ServeHTTP(w, r)
}

// fault is one way in which a host can be wrong.
type fault struct {
	name  string
	opts  func(*Options)
	begin func(f *faulty) // before the mirror looks
	later func(f *faulty) // once all rooms are held
	want  func(f *faulty) bool
	mend  bool // the fault is of the whole host: the good rooms go on once it is over
	heavy bool // each look takes long: one more will do
}

// lies makes the bad room's records others than they are.
func lies(change func(f *faulty, texts [][]byte) [][]byte) func(*faulty) {
	return func(f *faulty) {
		texts := change(f, f.bad.texts())
		f.h.set(func() { f.h.rooms["bad"].texts = texts })
	}
}

// swap replaces a text within the third record.
func swap(old, now string) func(*faulty) {
	return lies(func(f *faulty, texts [][]byte) [][]byte { return tamper(texts, 2, old, now) })
}

// answers takes over a path of the host.
func answers(path string, answer func(f *faulty, w http.ResponseWriter, r *http.Request)) func(*faulty) {
	return func(f *faulty) {
		f.h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != path {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			answer(f, w, r)
			return true
		})
	}
}

// testPage is what a page of events may be long here.
const testPage = 2 << 20

// half a million rooms, as a list shows them.
var manyRooms = sync.OnceValue(func() string {
	var b strings.Builder
	for i := range 500_000 {
		fmt.Fprintf(&b, `,{"id":"z%d"}`, i)
	}
	return b.String()
})

const (
	badEvents = "/v1/rooms/bad/events"
	listPath  = "/v1/rooms/public"
	discovery = "/.well-known/agent-discourse"
)

func says(path, body string) func(*faulty) {
	return answers(path, func(_ *faulty, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
}

func fails(path string, status int) func(*faulty) {
	return answers(path, func(_ *faulty, w http.ResponseWriter, _ *http.Request) { refuse(w, status, "x") })
}

func leads(path, to string, status int) func(*faulty) {
	return answers(path, func(f *faulty, w http.ResponseWriter, r *http.Request) {
		f.spin++
		w.Header().Set("Location", strings.NewReplacer("{host}", f.h.srv.URL, "{n}", fmt.Sprint(f.spin), "{query}", r.URL.RawQuery).Replace(to))
		w.WriteHeader(status)
	})
}

// lists adds entries to the room list.
func lists(entries string) func(*faulty) {
	return answers(listPath, func(f *faulty, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "[%s", entries)
		for _, id := range []string{"good1", "bad", "good2"} {
			fmt.Fprintf(w, ",%s", f.h.resource(id, f.h.rooms[id]))
		}
		fmt.Fprint(w, "]")
	})
}

// listed changes what the host says of the bad room.
func listed(change func(f *faulty, r *fakeRoom)) func(*faulty) {
	return func(f *faulty) { f.h.set(func() { change(f, f.h.rooms["bad"]) }) }
}

func (f *faulty) row() replica.Row { return f.g.row(f.h, "bad") }

// What is expected of the bad room, or of the host.

func verdict(want, reason string) func(*faulty) bool {
	return func(f *faulty) bool {
		row := f.row()
		return row.EffectiveVerdict() == want && strings.Contains(row.Reason, reason)
	}
}

func broken(seq int) func(*faulty) bool { return verdict(replica.Broken, fmt.Sprintf("seq %d: ", seq)) }

func state(want, reason string) func(*faulty) bool {
	return func(f *faulty) bool {
		row := f.row()
		return row.State == want && strings.Contains(row.Reason, reason)
	}
}

func problem(reason string) func(*faulty) bool {
	return func(f *faulty) bool {
		return slices.ContainsFunc(f.g.m.Hosts()[0].Problems, func(p RoomProblem) bool { return p.RoomID == "bad" && strings.Contains(p.Reason, reason) })
	}
}

func hostIs(state, reason string) func(*faulty) bool {
	return func(f *faulty) bool {
		s := f.g.m.Hosts()[0]
		return s.State == state && strings.Contains(s.Reason, reason)
	}
}

func all(wants ...func(*faulty) bool) func(*faulty) bool {
	return func(f *faulty) bool {
		for _, w := range wants {
			if !w(f) {
				return false
			}
		}
		return true
	}
}

// harmless: the fault does no harm.
func harmless(want string) func(*faulty) bool {
	return func(f *faulty) bool {
		row := f.row()
		return row.Seq == int64(len(f.bad.recs)) && row.EffectiveVerdict() == want && row.State == replica.Following
	}
}

// holdsNone: nothing of the bad room is kept.
func holdsNone(f *faulty) bool { _, ok := f.g.set.Get(f.h.origin(), "bad"); return !ok }

func seq(n int64) func(*faulty) bool { return func(f *faulty) bool { return f.row().Seq == n } }

var faults = []fault{
	// records that are not authentic, or do not link
	{name: "payload changed", begin: swap("message 2", "never said"), want: all(broken(3), seq(2))},
	{name: "signature of another record", begin: lies(func(f *faulty, x [][]byte) [][]byte {
		return tamper(x, 2, f.bad.recs[2].Envelope.Signature, f.bad.recs[3].Envelope.Signature)
	}), want: broken(3)},
	{name: "seq renumbered", begin: swap(`"seq":3`, `"seq":4`), want: broken(3)},
	{name: "seq zero", begin: swap(`"seq":3`, `"seq":0`), want: broken(3)},
	{name: "seq beyond 2^53", begin: swap(`"seq":3`, `"seq":9007199254740993`), want: broken(3)},
	{name: "seq in exponent form", begin: swap(`"seq":3`, `"seq":3e0`), want: harmless(replica.Verified)}, // the same number (I-JSON)
	{name: "leading zero", begin: swap(`"seq":3`, `"seq":03`), want: broken(3)},
	{name: "member twice", begin: swap(`"seq":3`, `"seq":3,"seq":3`), want: broken(3)},
	{name: "member too many", begin: swap(`"seq":3`, `"seq":3,"x":1`), want: broken(3)},
	{name: "record cut short", begin: swap(`"seq":3}`, ``), want: broken(3)},
	{name: "record that is a number", begin: lies(func(_ *faulty, x [][]byte) [][]byte { return append(x[:2], []byte("7")) }), want: broken(3)},
	{name: "lone surrogate", begin: swap("message 2", `\ud800`), want: broken(3)},
	{name: "deep nesting", begin: swap(`"message 2"`, strings.Repeat("[", 500)+strings.Repeat("]", 500)), want: broken(3)},
	{name: "gap", begin: lies(func(_ *faulty, x [][]byte) [][]byte { return slices.Delete(x, 2, 3) }), want: broken(3)},
	{name: "record of another room", begin: lies(func(f *faulty, x [][]byte) [][]byte { x[2] = f.good[0].texts()[2]; return x }), want: broken(3)},
	{name: "pre_hash of another record", begin: lies(func(f *faulty, x [][]byte) [][]byte {
		return tamper(x, 2, f.bad.recs[2].PreHash, f.bad.recs[0].Hash)
	}), want: broken(3)},
	{name: "received_at changed to 1970", begin: lies(func(f *faulty, x [][]byte) [][]byte {
		return tamper(x, 2, fmt.Sprintf(`"received_at":%d`, f.bad.recs[2].ReceivedAt), `"received_at":1`)
	}), want: broken(3)},
	{name: "lie in the first record", begin: lies(func(_ *faulty, x [][]byte) [][]byte { return tamper(x, 0, "Room bad", "Room mad") }), want: all(problem("seq 1: "), holdsNone)},
	{name: "room that begins at seq 2", begin: lies(func(_ *faulty, x [][]byte) [][]byte { return x[1:] }), want: all(problem("seq 1: "), holdsNone)},
	{name: "elements that are no JSON", begin: answers(badEvents, func(f *faulty, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "[%s,%s,oops]", f.bad.texts()[0], f.bad.texts()[1])
	}), want: broken(3)},

	// authentic records that a MUST forbade, and odd times
	{name: "message of a stranger", begin: func(f *faulty) { f.bad.say(foreign, "let me in"); f.h.put(f.bad) }, want: harmless(replica.Violations)},
	{name: "received in the year 9999", begin: func(f *faulty) { f.at(253402300799000) }, want: func(f *faulty) bool { return seq(int64(len(f.bad.recs)))(f) }},
	{name: "received in 1970", begin: func(f *faulty) { f.at(1) }, want: func(f *faulty) bool { return seq(int64(len(f.bad.recs)))(f) }},

	// pages of events
	{name: "page that repeats", begin: answers(badEvents, func(f *faulty, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "[%s]", strings.Join([]string{string(f.bad.texts()[0]), string(f.bad.texts()[1])}, ","))
	}), want: problem("repeats a page")},
	{name: "no records", begin: says(badEvents, "[]"), want: all(problem("serves no records"), holdsNone)},
	{name: "records that stop early", begin: lies(func(_ *faulty, x [][]byte) [][]byte { return x[:3] }), want: all(problem("nothing behind seq 3"), seq(3))},
	{name: "events that are no array", begin: says(badEvents, "{}"), want: problem("not a JSON array")},
	{name: "empty body", begin: says(badEvents, ""), want: problem("not a JSON array")},
	{name: "wrong content type", begin: answers(badEvents, func(_ *faulty, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html>")
	}), want: problem("content type")},
	{name: "content encoding nobody asked for", begin: answers(badEvents, func(_ *faulty, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		fmt.Fprint(w, "x")
	}), want: problem("Content-Encoding")},
	{name: "compression bomb", begin: answers(badEvents, func(_ *faulty, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		zeros := make([]byte, 1<<20)
		for range testPage>>20 + 2 {
			_, _ = z.Write(zeros)
		}
		_ = z.Close()
	}), want: problem("too large")},
	{name: "length beyond the bound", begin: answers(badEvents, func(_ *faulty, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(int64(1)<<40))
		fmt.Fprint(w, "[")
	}), want: problem("too large")},
	{name: "body that drips", begin: func(f *faulty) {
		f.slow[badEvents] = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for tick := time.NewTicker(100 * time.Millisecond); ; {
				fmt.Fprint(w, " ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-tick.C:
				case <-r.Context().Done():
					return
				}
			}
		}
	}, want: problem("slow")},
	{name: "body that never ends", begin: func(f *faulty) {
		f.slow[badEvents] = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for blanks := []byte(strings.Repeat(" ", 1<<20)); r.Context().Err() == nil; {
				if _, err := w.Write(blanks); err != nil {
					return
				}
			}
		}
	}, want: problem("too large")},
	{name: "connection cut in the body", begin: answers(badEvents, func(_ *faulty, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "[")
	}), want: problem("broken")},
	{name: "header without end", begin: answers(badEvents, func(_ *faulty, w http.ResponseWriter, _ *http.Request) {
		for i := range 200 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 1000))
		}
		fmt.Fprint(w, "[]")
	}), want: problem("too large")},
	{name: "events that fail", begin: fails(badEvents, 500), want: problem("500")},
	{name: "events that are not there", begin: fails(badEvents, 404), want: problem("404")},
	{name: "redirect to another host", begin: leads(badEvents, "http://127.0.0.1:2/v1/rooms/bad/events", 302), want: problem("another origin")},
	{name: "redirect to a private name", begin: leads(badEvents, "http://169.254.169.254/latest", 307), want: problem("redirect")},
	{name: "redirects without end", begin: func(f *faulty) {
		leads(badEvents, "{host}/v1/rooms/bad/events?n={n}", 302)(f)
	}, want: problem("redirects")},
	{name: "redirect within the origin", begin: leads(badEvents, "{host}/v1/rooms/../rooms/./bad/events?{query}&n={n}", 307), want: problem("redirect")},

	// the room list and the room resource against the records
	{name: "list ahead of the records", begin: listed(func(_ *faulty, r *fakeRoom) { r.seq = 900 }), want: all(problem("lists seq 900"), seq(6))},
	{name: "list with a seq beyond 2^53", begin: answersList(`"seq":9007199254740993`), want: all(hostIs(Following, "cannot be read"), holdsNone)},
	{name: "list with another hash", begin: listed(func(f *faulty, r *fakeRoom) { r.hash = f.good[0].recs[0].Hash }), want: problem("lists another hash")},
	{name: "list behind the records", begin: listed(func(f *faulty, r *fakeRoom) { r.seq, r.hash = 3, f.bad.recs[2].Hash }), want: all(state(replica.Behind, "seq 4: "), seq(6))},
	{name: "list that ends a room too early", begin: listed(func(_ *faulty, r *fakeRoom) { r.status = string(room.Ended) }), want: all(problem("lists the room as over"), seq(6))},
	{name: "list that says no head", begin: listed(func(_ *faulty, r *fakeRoom) { r.seq, r.hash = 0, "" }), want: func(f *faulty) bool { return seq(6)(f) }},
	{name: "private room listed as public", begin: func(f *faulty) {
		f.bad = newStory(f.t, "bad", map[string]any{"visibility": "private"})
		f.h.put(f.bad)
	}, want: all(problem("its first record says that it is not"), holdsNone)},
	{name: "room IDs that are none", begin: lists(`{"id":"../../etc","visibility":"public"},{"id":"","visibility":"public"},{"id":"public","visibility":"public"},{"id":"a/b","visibility":"public"},{"id":7},{"visibility":"public"},7,null`),
		want: all(harmless(replica.Verified), func(f *faulty) bool { return f.g.m.Hosts()[0].Rooms == 3 })},
	{name: "two rooms with one ID", begin: lists(`{"id":"bad","visibility":"public","status":"active","seq":900,"hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`), want: all(problem("lists seq 900"), seq(6))},
	{name: "entry that cannot be read", begin: lists(`{"id":"x","id":"y"}`), want: all(harmless(replica.Verified), hostIs(Following, "cannot be read"))},
	{name: "list without end", opts: func(o *Options) { o.RoomsPerHost = 50 }, begin: answers(listPath, func(f *faulty, w http.ResponseWriter, r *http.Request) {
		f.spin++
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?page=%d>; rel="next"`, f.h.srv.URL, listPath, f.spin))
		fmt.Fprintf(w, `[{"id":"x%d","visibility":"unlisted"}`, f.spin)
		for id, room := range f.h.rooms {
			fmt.Fprintf(w, ",%s", f.h.resource(id, room))
		}
		fmt.Fprint(w, "]")
	}), want: all(harmless(replica.Verified), hostIs(Following, "more than 50 rooms"))},
	{name: "half a million rooms in one list", heavy: true, opts: func(o *Options) { o.RoomsPerHost = 1000 }, begin: answers(listPath, func(f *faulty, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "[%s,%s,%s%s]", f.h.resource("good1", f.h.rooms["good1"]), f.h.resource("good2", f.h.rooms["good2"]), f.h.resource("bad", f.h.rooms["bad"]), manyRooms())
	}), want: all(harmless(replica.Verified), hostIs(Following, "more than 1000 rooms"))},
	{name: "list that repeats its pages", begin: links(`<{host}/v1/rooms/public?cursor=>; rel="next"`), want: all(harmless(replica.Verified), hostIs(Following, "read before"))},
	{name: "list that leads to another host", begin: links(`<http://127.0.0.1:2/v1/rooms/public>; rel="next"`), want: all(harmless(replica.Verified), hostIs(Following, "another origin"))},
	{name: "list whose cursor never moves", begin: links(`<{host}/v1/rooms/public?n={n}>; rel="next"`), want: all(harmless(replica.Verified), hostIs(Following, "without naming another room"))},
	{name: "list whose link is no URL", begin: links(`<:%zz>; rel="next"`), want: all(harmless(replica.Verified), hostIs(Following, "not a URL"))},

	// rooms that change behind our back
	{name: "room that goes private", later: listed(func(_ *faulty, r *fakeRoom) { r.visibility = room.Private }), want: state(replica.Gone, "private")},
	{name: "room that vanishes", later: func(f *faulty) { f.h.set(func() { delete(f.h.rooms, "bad") }) }, want: state(replica.Gone, "404")},
	{name: "fork", later: func(f *faulty) {
		c := f.bad.cut(3)
		for len(c.recs) < 8 {
			c.say(member, "another story")
		}
		f.h.put(c)
	}, want: all(verdict(replica.Forked, "seq 4: "), seq(6))},
	{name: "shorter story", later: func(f *faulty) { f.h.put(f.bad.cut(4)) }, want: all(state(replica.Behind, "seq 5: "), seq(6))},
	{name: "other genesis", later: func(f *faulty) { f.h.put(talk(f.t, "bad", 7)) }, want: all(state(replica.Gone, "seq 1: "), seq(6))},
	{name: "garbage in place of what was shown", later: func(f *faulty) {
		x := talk(f.t, "bad", 9)
		f.h.put(x)
		f.h.set(func() { f.h.rooms["bad"].texts = append(f.bad.texts()[:4], x.texts()[4:]...) })
	}, want: all(verdict(replica.Broken, "seq 5: "), seq(6))},
	{name: "archive that does not fit", later: func(f *faulty) {
		s := f.bad.cut(5)
		s.say(member, "not in the room")
		manifest, _ := ended(f.t, s, true)
		f.bad.add(creator, room.Close, map[string]any{})
		f.h.end(f.bad, manifest)
	}, want: verdict(replica.ArchiveMismatch, "")},
	{name: "records behind the archive", later: func(f *faulty) {
		manifest, _ := ended(f.t, f.bad, true)
		f.h.end(f.bad, manifest)
		f.g.completes(f.h, "bad")
		f.bad.say(member, "afterwards")
		f.h.end(f.bad, manifest)
	}, want: verdict(replica.ArchiveMismatch, "after the archive was made")},

	// the host as a whole
	{name: "discovery that is no JSON", begin: says(discovery, "x"), want: hostIs(BackingOff, "discovery"), mend: true},
	{name: "discovery of another protocol", begin: says(discovery, `{"protocol":"agent-discourse/9.0"}`), want: hostIs(BackingOff, adp.Protocol), mend: true},
	{name: "API at another origin", begin: says(discovery, `{"protocol":"agent-discourse/1.0","endpoints":{"api":"http://127.0.0.1:2/v1"}}`), want: hostIs(BackingOff, "mirror that origin"), mend: true},
	{name: "discovery that leads elsewhere", begin: leads(discovery, "http://127.0.0.1:2/", 301), want: hostIs(BackingOff, "another origin"), mend: true},
	{name: "discovery without end", begin: answers(discovery, func(_ *faulty, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Repeat(" ", maxDiscovery+1))
	}), want: hostIs(BackingOff, "too large"), mend: true},
	{name: "no discovery", begin: fails(discovery, 404), want: hostIs(Gone, "404"), mend: true},
	{name: "host that is busy", begin: answers(discovery, func(_ *faulty, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		refuse(w, 503, "busy")
	}), want: hostIs(BackingOff, ""), mend: true},
	{name: "list that fails", later: fails(listPath, 500), want: all(hostIs(BackingOff, "500"), harmless(replica.Verified)), mend: true},
	{name: "list that is no array", later: says(listPath, `{"rooms":[]}`), want: all(hostIs(BackingOff, "not a JSON array"), harmless(replica.Verified)), mend: true},
	{name: "list in another type", later: answers(listPath, func(_ *faulty, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "[]")
	}), want: all(hostIs(BackingOff, "content type"), harmless(replica.Verified)), mend: true},
	{name: "key document that leads elsewhere", begin: leads("/.well-known/did.json", "http://127.0.0.1:2/", 302), want: all(harmless(replica.Verified), hostIs(Following, "did:web document cannot be read"))},
	{name: "key document without end", begin: says("/.well-known/did.json", strings.Repeat(" ", keys.MaxDocument+1)), want: all(harmless(replica.Verified), hostIs(Following, "too large"))},
	{name: "key document that is none", begin: func(f *faulty) { f.h.set(func() { f.h.did = []byte(`{"id":"did:web:elsewhere"}`) }) }, want: harmless(replica.Verified)},
	{name: "keys that change", begin: func(f *faulty) { f.key(4) }, later: func(f *faulty) {
		f.key(5)
		// the host is read anew after a failure
		fails(listPath, 500)(f)
		until(f.t, "it fails", func() bool { return f.g.m.Hosts()[0].State == BackingOff })
		f.h.takeOver(nil)
	}, want: hostIs(Rebound, "other keys")},
}

// links adds a Link header to the room list.
func links(link string) func(*faulty) {
	return func(f *faulty) {
		f.h.takeOver(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == listPath {
				f.spin++
				w.Header().Set("Link", strings.NewReplacer("{host}", f.h.srv.URL, "{n}", fmt.Sprint(f.spin)).Replace(link))
			}
			return false
		})
	}
}

// answersList changes the seq of the bad room in the list.
func answersList(seq string) func(*faulty) {
	return answers(listPath, func(f *faulty, w http.ResponseWriter, _ *http.Request) {
		var items []string
		for id, room := range f.h.rooms {
			item := string(f.h.resource(id, room))
			if id == "bad" {
				item = strings.Replace(item, fmt.Sprintf(`"seq":%d`, room.seq), seq, 1)
			}
			items = append(items, item)
		}
		fmt.Fprintf(w, "[%s]", strings.Join(items, ","))
	})
}

// at adds a record that the host says it received at another time.
func (f *faulty) at(received int64) {
	f.bad.say(member, "at an odd time")
	last := f.bad.recs[len(f.bad.recs)-1]
	f.bad.recs[len(f.bad.recs)-1] = adp.NewRecord(last.Envelope, "bad", last.Seq, last.PreHash, received)
	f.bad.head = *f.bad.recs[len(f.bad.recs)-1]
	f.h.put(f.bad)
}

func (f *faulty) key(seed byte) {
	did, err := keys.RenderDocument(f.h.origin(), keys.FromSeed([32]byte{seed}, 1))
	if err != nil {
		f.t.Fatal(err)
	}
	f.h.set(func() { f.h.did = did })
}

// perTry is how many requests for events one try may take: redirects are followed five times.
const perTry = 6

// Whatever one room or one answer of a host does: it leaves a reason, is not asked
// hotly, and the good rooms beside it reach their head.
func TestFaults(t *testing.T) {
	if len(faults) < 40 {
		t.Fatalf("%d faults", len(faults))
	}
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := &faulty{t: t, h: newFakeHost(t), bad: talk(t, "bad", 6), good: []*story{talk(t, "good1", 5), talk(t, "good2", 5)}, slow: map[string]http.HandlerFunc{}}
			f.h.srv.Config.Handler = f
			f.h.put(append(f.good, f.bad)...)
			if c.begin != nil {
				c.begin(f)
			}
			began := time.Now()
			f.g = startOn(t, memory(t), c.opts, func(m *Mirror) { m.pageBytes = testPage }).follow(f.h)
			if c.later != nil {
				for _, s := range append(f.good, f.bad) {
					f.g.holds(f.h, s)
				}
				c.later(f)
			}
			until(t, "the verdict: "+c.name, func() bool { return c.want(f) })
			if c.mend {
				f.h.takeOver(nil)
			}
			asked := f.h.count(badEvents)
			rounds, looks := 2, 3
			if c.heavy {
				rounds, looks = 1, 0
			}
			for range rounds { // the good rooms are held, and go on
				for _, s := range f.good {
					f.g.holds(f.h, s)
					s.say(member, "on")
					f.h.put(s)
				}
			}
			f.g.looks(f.h, looks)
			n := f.h.count(badEvents) - asked
			if most := perTry * f.g.tries(time.Since(began)); n > most {
				t.Errorf("the bad room was asked for %d times meanwhile, want at most %d", n, most)
			}
			if !c.mend && !c.want(f) {
				t.Errorf("it did not last: %+v, %+v", f.row(), f.g.m.Hosts()[0])
			}
			for _, s := range f.good {
				f.g.holds(f.h, s)
				if row := f.g.row(f.h, s.id); row.EffectiveVerdict() != replica.Verified || row.State != replica.Following {
					t.Errorf("%s: %+v", s.id, row)
				}
			}
		})
	}
}
