package room

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/witan-adp/witan/adp"
)

// full is a state that has something of everything.
func full(t testing.TB) *world {
	w := unresolved(t)
	w.force(w.event(speaker, "ext.say", obj{}, nil))
	for seed := byte(20); seed < 30; seed++ {
		w.must(creator, Remove, obj{"member": ag(seed).id, "ban": true})
	}
	w.must(creator, Review, obj{"request": w.ask(stranger, "speaker", "pending"), "decision": "approve", "role": "observer"})
	w.must(creator, Review, obj{"request": w.ask(ag(30), "speaker", "pending"), "decision": "reject"})
	w.must(stranger, Join, obj{"role": "observer", "request_id": "jr_1"})
	return w
}

func TestSnapshotRoundTrip(t *testing.T) {
	for name, w := range map[string]*world{
		"full": full(t), "peopled": peopled(t),
		"closed": func() *world { w := peopled(t); w.must(creator, Close, obj{}); return w }(),
		"cancelled": func() *world {
			w := open(t, obj{"start_time": t0 + hour, "end_time": t0 + 2*hour})
			w.must(creator, Cancel, obj{})
			return w
		}(),
		"contract": open(t, obj{"topic": "<b>&\u2028é😀", "agenda": "a", "guidance": "g", "language": "zh", "tags": []string{"x"}, "extra": obj{"é": []any{1.5, nil, "<"}},
			"policy": obj{"max_speakers": 3, "observer_allowed": false, "extra": obj{"<": "&"}},
			"types":  []any{obj{"type": "a.b", "kind": "signal", "title": "<&>\u2028", "schema": obj{"description": "</script>"}}}}),
	} {
		b, err := w.s.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Restore(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := got.Snapshot()
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: snapshot differs after a round trip (%v):\n%s", name, err, cmp.Diff(string(b), string(again)))
		}
		if got.Speakers() != w.s.Speakers() || got.Observers() != w.s.Observers() || got.Registry.Len() != w.s.Registry.Len() {
			t.Errorf("%s: %d speakers, %d observers, want %d, %d", name, got.Speakers(), got.Observers(), w.s.Speakers(), w.s.Observers())
		}
		if r := got.Resource("u", w.now); !bytes.Equal(r, w.s.Resource("u", w.now)) {
			t.Errorf("%s: resource differs:\n%s", name, r)
		}
	}
}

func TestSnapshotIsDeterministic(t *testing.T) {
	w := full(t)
	want := w.snapshot()
	for range 20 {
		if got := w.snapshot(); got != want {
			t.Fatalf("equal states gave other bytes:\n%s", cmp.Diff(want, got))
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	good := full(t).snapshot()
	for name, text := range map[string]string{
		"nothing": "", "no object": "[]", "cut": good[:len(good)/2], "another version": strings.Replace(good, `"Version":1`, `"Version":2`, 1),
		"no contract": `{"Version":1}`, "a bad type": `{"Version":1,"Contract":{},"Types":[{"type":"a.b"}]}`,
		"a type of two kinds": `{"Version":1,"Contract":{},"Types":[{"type":"a.b","kind":"signal","title":"t","schema":{}},{"type":"a.b","kind":"message","title":"t","schema":{}}]}`,
	} {
		if s, err := Restore([]byte(text)); err == nil || s != nil || !strings.HasPrefix(err.Error(), "room snapshot: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCloneIsIndependent(t *testing.T) {
	w := full(t)
	before := w.snapshot()
	c := w.s.Clone()
	if snap(t, c) != before {
		t.Fatal("the clone differs")
	}
	own := w.s
	w.s = c // and let the clone live on
	w.must(creator, Remove, obj{"member": speaker.id, "ban": true})
	w.force(w.event(creator, Define, testTypes[1], nil))
	w.force(w.event(creator, Update, obj{"agenda": "other", "tags": []string{"t"}, "policy": obj{}}, nil))
	w.must(creator, Review, obj{"request": w.ask(speaker, "speaker", "pending"), "decision": "approve", "role": "speaker"})
	w.force(w.event(chair, "ext.say", obj{}, nil))
	w.force(w.event(creator, Define, obj{"use": "adp:moderation/1.0"}, nil))
	w.force(w.event(creator, Close, obj{}, nil))
	if got := snap(t, own); got != before {
		t.Errorf("the original changed:\n%s", cmp.Diff(before, got))
	}
}

// The text of a record may be lent by a store: a state keeps nothing of it.
func TestStateKeepsNoLentBytes(t *testing.T) {
	w := empty(t)
	w.must(creator, Create, contract(obj{"extra": obj{"k": "keep"}, "policy": obj{"extra": obj{"k": "keep"}}, "types": testTypes}))
	w.must(creator, Define, obj{"type": "a.b", "kind": "signal", "title": "t", "schema": obj{}})
	s := New(testRoom)
	var chain MemoryChain
	for _, r := range w.records {
		lent := bytes.Clone(r.JSON())
		v, err := adp.ScanDepth(lent, adp.RecordDepth)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := adp.ParseRecord(v)
		if err != nil {
			t.Fatal(err)
		}
		_, ch, err := s.Judge(rec, Context{Chain: &chain})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Advance(rec, ch); err != nil {
			t.Fatal(err)
		}
		chain.Add(rec)
		for i := range lent {
			lent[i] = 'X'
		}
	}
	if got := snap(t, s); got != w.snapshot() {
		t.Errorf("the state changed with the record's buffer:\n%s", cmp.Diff(w.snapshot(), got))
	}
}

// ADP §16: the members of the Room resource, in order, and what is left out.
func TestResource(t *testing.T) {
	w := open(t, obj{"topic": "<T> & \u2028", "agenda": "a", "guidance": "g", "tags": []string{"x"}, "language": "en", "extra": obj{"n": 1.5}, "policy": obj{"max_speakers": 9}})
	w.must(speaker, Join, obj{"role": "speaker"})
	w.must(speaker, "a.sign", obj{})
	names := func(b []byte) []string {
		t.Helper()
		v, err := adp.Scan(b)
		if err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		var out []string
		for name := range v.Members() {
			out = append(out, name)
		}
		return out
	}
	all := []string{"id", "status", "url", "creator", "created_at", "topic", "agenda", "guidance", "visibility", "start_time", "end_time", "tags", "language", "policy", "extra", "types",
		"seq", "pre_hash", "hash", "received_at", "head"}
	b := w.s.Resource("https://h.example/v1/rooms/"+testRoom, w.now)
	if got := names(b); !slices.Equal(got, all) {
		t.Errorf("members %v", got)
	}
	var r struct {
		ID, Status, URL, Topic string
		Creator                adp.AgentID
		CreatedAt              int64 `json:"created_at"`
		Policy, Extra          json.RawMessage
		Types                  []json.RawMessage
		Seq                    int64
		PreHash                *string `json:"pre_hash"`
		Hash                   string
		ReceivedAt             int64 `json:"received_at"`
		Head                   Position
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.ID != testRoom || r.Status != "active" || r.Creator != creator.id || r.CreatedAt != t0 || r.Topic != "<T> & \u2028" || string(r.Policy) != `{"max_speakers":9}` || string(r.Extra) != `{"n":1.5}` {
		t.Errorf("resource %s", b)
	}
	if r.Seq != 3 || r.PreHash == nil || *r.PreHash != w.records[1].Hash || r.Hash != w.records[2].Hash || r.ReceivedAt != t0 || r.Head != (Position{1, w.records[0].Hash}) {
		t.Errorf("resource %s", b)
	}
	if len(r.Types) != len(testTypes) || !strings.Contains(string(r.Types[0]), `"status":"active"`) {
		t.Errorf("types %s", r.Types)
	}
	if strings.Contains(string(b), `\u003c`) {
		t.Error("text is escaped as for HTML")
	}
	if got := names(w.s.Listed("u", w.now)); slices.Contains(got, "types") || len(got) != len(all)-1 {
		t.Errorf("listed: %v", got)
	}
	if got := names(w.s.ListedFor("u", w.now, "speaker", "active")); !slices.Equal(got[len(got)-2:], []string{"role", "membership"}) || slices.Contains(got, "types") {
		t.Errorf("listed for an agent: %v", got)
	}
	if got := names(w.s.ListedFor("u", w.now, "", "left")); slices.Contains(got, "role") {
		t.Errorf("listed for one who left: %v", got)
	}
	// the bare minimum
	w = empty(t)
	w.must(creator, Create, contract(nil))
	b = w.s.Resource("u", w.now)
	want := []string{"id", "status", "url", "creator", "created_at", "topic", "visibility", "start_time", "end_time", "types", "seq", "pre_hash", "hash", "received_at", "head"}
	if got := names(b); !slices.Equal(got, want) {
		t.Errorf("members %v", got)
	}
	if !strings.Contains(string(b), `"types":[]`) || !strings.Contains(string(b), `"pre_hash":null`) {
		t.Errorf("resource %s", b)
	}
}
