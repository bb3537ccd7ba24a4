package room

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// external is a pack document of one signal and one message, and its digest.
func external(t testing.TB) (digest string, pack *types.Pack) {
	t.Helper()
	raw := []byte(`{"protocol":"agent-discourse/1.0","packs":[{"id":"ext/1.0","title":"Ext","types":[
		{"type":"ext.note","kind":"signal","title":"Note","schema":{}},{"type":"ext.say","kind":"message","title":"Say","schema":{"required":["x"]}}]}]}`)
	sum := sha256.Sum256(raw)
	p, err := types.ParsePack(raw)
	if err != nil {
		t.Fatal(err)
	}
	return "sha256:" + adp.Encode(sum[:]), p
}

func TestExternalPack(t *testing.T) {
	digest, pack := external(t)
	imports := []any{obj{"pack": "https://h.example/p.json", "digest": digest}}
	w := empty(t)
	w.refuse(adp.PackUnavailable, creator, Create, contract(obj{"types": imports}))
	w.packs = map[string]*types.Pack{digest: pack}
	w.must(creator, Create, contract(obj{"types": imports}))
	if w.s.Registry.Len() != 2 || len(w.s.External) != 1 || w.s.External[0] != (types.PackRef{URI: "https://h.example/p.json", Digest: digest}) || w.s.Unresolved {
		t.Errorf("types %d, external %v", w.s.Registry.Len(), w.s.External)
	}
	w.must(creator, "ext.say", obj{"x": 1})
	w.refuse(adp.PayloadSchemaViolation, creator, "ext.say", obj{})
}

// unresolved is somebody's room that imports a pack we cannot get.
func unresolved(t testing.TB) *world {
	w := peopled(t)
	digest, _ := external(t)
	v := w.force(w.event(creator, Define, obj{"pack": "https://h.example/p.json", "digest": digest}, nil))
	if v.Outcome != Unverifiable || !w.s.Unresolved {
		t.Fatalf("import: %+v", v)
	}
	return w
}

// federation, Mirroring a host, 4: what cannot be judged is unverifiable, not
// wrong.
func TestUnresolvedPack(t *testing.T) {
	w := unresolved(t)
	before := w.s.Head
	if v := w.force(w.event(speaker, "ext.say", obj{}, nil)); v.Outcome != Unverifiable {
		t.Errorf("unknown type: %+v", v)
	}
	if w.s.Head != before || len(w.s.Maybe) != 1 {
		t.Errorf("head %v, maybe %v", w.s.Head, w.s.Maybe)
	}
	maybe := w.s.Last
	if v := w.force(w.event(stranger, "ext.say", obj{}, nil)); v.Rule != adp.PermissionDenied {
		t.Errorf("no type reaches a stranger: %+v", v)
	}
	// either may be the head
	for _, base := range []Position{before, maybe} {
		if v, _ := w.judge(w.event(speaker, Message, say("x"), obj{"base_seq": base.Seq, "base_hash": base.Hash})); v.Outcome != Unverifiable {
			t.Errorf("on %d: %+v", base.Seq, v)
		}
	}
	for _, base := range []Position{{1, w.s.Genesis}, {maybe.Seq, noHash}, {99, noHash}} {
		if v, _ := w.judge(w.event(speaker, Message, say("x"), obj{"base_seq": base.Seq, "base_hash": base.Hash})); v.Rule != adp.RoomHeadMismatch {
			t.Errorf("on %d: %+v", base.Seq, v)
		}
		if base.Seq == 1 {
			continue
		}
		if v, _ := w.judge(w.event(speaker, "ext.say", obj{}, obj{"base_seq": base.Seq, "base_hash": base.Hash})); v.Rule != adp.BaseRecordMismatch {
			t.Errorf("unknown type on %d: %+v", base.Seq, v)
		}
	}
	w.force(w.event(speaker, Message, say("x"), obj{"base_seq": maybe.Seq, "base_hash": maybe.Hash}))
	if w.s.Head != w.s.Last || w.s.Maybe != nil {
		t.Error("a message is the head, whatever came before")
	}
	if v := w.force(w.event(speaker, Message, say("y"), nil)); v.Outcome != Allowed {
		t.Errorf("the head is known again: %+v", v)
	}
	// our own host does not write into what it cannot judge
	w.refuse(adp.TypeNotDefined, speaker, "ext.say", obj{})
}

// An import that is not at hand may have redefined any type.
func TestUnresolvedMayRedefine(t *testing.T) {
	check(t, []rule{
		{"as defined", unresolved, speaker, "review.finding", obj{"severity": "low"}, nil, "", ""},
		{"another schema", unresolved, speaker, "review.finding", obj{"severity": "odd"}, nil, adp.PayloadSchemaViolation, "unverifiable"},
		{"another status", unresolved, speaker, "a.off", obj{}, nil, adp.TypeDisabled, "unverifiable"},
		{"other roles", unresolved, speaker, "a.lead", obj{}, nil, adp.PermissionDenied, "unverifiable"},
		{"a stranger all the same", unresolved, stranger, "a.sign", obj{}, nil, adp.PermissionDenied, ""},
		{"the head all the same", unresolved, speaker, "a.old", obj{}, obj{"base_seq": 1, "base_hash": peopled(t).s.Genesis}, adp.RoomHeadMismatch, ""},
		{"built-in types all the same", unresolved, observer, Message, say("x"), nil, adp.PermissionDenied, ""},
	})
}

// A definition that no host should have taken leaves the registry in doubt.
func TestBadDefinitionLeavesDoubt(t *testing.T) {
	for name, payload := range map[string]obj{
		"kind changed":   {"type": "review.finding", "kind": "signal", "title": "t", "schema": obj{}},
		"foreign member": {"type": "a.new", "kind": "signal", "title": "t", "schema": obj{}, "x": 1},
		"remote $ref":    {"type": "a.new", "kind": "signal", "title": "t", "schema": obj{"$ref": "https://h.example/"}},
	} {
		w := peopled(t)
		if v := w.force(w.event(creator, Define, payload, nil)); v.Rule != adp.InvalidEvent {
			t.Errorf("%s: %+v", name, v)
		}
		if d, _ := w.s.Registry.Get("review.finding"); d.Kind != "message" || !w.s.Unresolved {
			t.Errorf("%s: kind %s, unresolved %v", name, d.Kind, w.s.Unresolved)
		}
		if v := w.force(w.event(creator, "a.new", obj{}, nil)); v.Outcome != Unverifiable {
			t.Errorf("%s: an event of the type: %+v", name, v)
		}
	}
}

// More records of unknown class than are remembered: still no false violation.
func TestMaybeHeadsAreBounded(t *testing.T) {
	w := unresolved(t)
	for range maxMaybe + 10 {
		w.force(w.event(speaker, "ext.note", obj{}, nil))
	}
	if len(w.s.Maybe) != maxMaybe {
		t.Fatalf("%d positions are kept", len(w.s.Maybe))
	}
	last := w.s.Last
	if v, _ := w.judge(w.event(speaker, Message, say("x"), obj{"base_seq": last.Seq, "base_hash": last.Hash})); v.Outcome != Unverifiable {
		t.Errorf("on the newest: %+v", v)
	}
	if v, _ := w.judge(w.event(speaker, Message, say("x"), obj{"base_seq": last.Seq, "base_hash": noHash})); v.Rule != adp.RoomHeadMismatch {
		t.Errorf("on nothing: %+v", v)
	}
	if v, _ := w.judge(w.event(speaker, Message, say("x"), obj{"base_seq": 2, "base_hash": w.records[1].Hash})); v.Rule != adp.RoomHeadMismatch {
		t.Errorf("on a record before the head: %+v", v)
	}
}

// A schema that our engine does not run makes its payloads unverifiable.
func TestForeignSchemaDialect(t *testing.T) {
	w := empty(t)
	if v := w.force(w.event(creator, Create, contract(obj{"types": []any{obj{"type": "a.b", "kind": "message", "title": "t", "schema": obj{"properties": obj{"s": obj{"pattern": `^(?=x)\p{L}`}}}}}}), nil)); v.Outcome != Allowed {
		t.Errorf("create: %+v", v)
	}
	if v := w.force(w.event(creator, "a.b", obj{"s": "x"}, nil)); v.Outcome != Unverifiable {
		t.Errorf("payload: %+v", v)
	}
	if w.s.Head != w.s.Last {
		t.Error("the class was known, and moves the head")
	}
	if v, _ := w.judge(w.event(stranger, "a.b", obj{"s": "x"}, nil)); v.Rule != adp.PermissionDenied {
		t.Errorf("a stranger: %+v", v)
	}
}

// A live write with a payload that nobody here can judge is not let in.
func TestLiveRefusesWhatItCannotJudge(t *testing.T) {
	w := empty(t)
	w.force(w.event(creator, Create, contract(obj{"types": []any{obj{"type": "a.b", "kind": "message", "title": "t", "schema": obj{"$id": "https://h.example/x"}}}}), nil))
	w.refuse(adp.InvalidEvent, creator, "a.b", obj{})
}

func TestPacksNeeded(t *testing.T) {
	digest, _ := external(t)
	ref := types.PackRef{URI: "https://h.example/p.json", Digest: digest}
	imp := obj{"pack": ref.URI, "digest": ref.Digest}
	w := peopled(t)
	for _, c := range []struct {
		typ     string
		payload any
		want    []types.PackRef
	}{
		{Create, contract(obj{"types": []any{imp, obj{"use": "adp:reactions/1.0"}, testTypes[1], imp}}), []types.PackRef{ref, ref}},
		{Create, contract(nil), nil},
		{Create, contract(obj{"types": []any{obj{"pack": 1, "digest": 2}, "x", nil}}), nil},
		{Define, imp, []types.PackRef{ref}},
		{Define, testTypes[1], nil},
		{Define, "x", nil},
		{Message, imp, nil},
	} {
		if got := PacksNeeded(w.event(creator, c.typ, c.payload, nil)); !slices.Equal(got, c.want) {
			t.Errorf("%s %v: %v", c.typ, c.payload, got)
		}
	}
}

func TestVerifier(t *testing.T) {
	w := peopled(t)
	w.must(speaker, Message, say("good"))
	w.force(w.event(stranger, Message, say("bad"), nil))
	w.must(stranger, Join, obj{"role": "speaker"})
	w.force(w.event(ag(9), Join, obj{"role": "speaker", "request_id": "jr_9"}, nil))
	w.force(w.event(observer, Close, obj{}, nil))
	w.force(w.event(observer, Message, say("late"), nil))

	v := NewVerifier(testRoom, nil)
	for _, r := range w.records {
		if err := v.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if snap(t, v.State) != w.snapshot() {
		t.Errorf("the state differs:\n%s\n%s", snap(t, v.State), w.snapshot())
	}
	var got []string
	for _, f := range v.Findings() {
		if f.Reason == "" {
			t.Errorf("finding without a reason: %+v", f)
		}
		got = append(got, fmt.Sprintf("%d %s %s", f.Seq, f.Outcome, f.Rule))
	}
	if want := []string{"6 violation permission_denied", "8 unverifiable ", "9 violation permission_denied", "10 violation room_ended"}; !slices.Equal(got, want) {
		t.Errorf("findings %q", got)
	}
	if v.Counts[Allowed] != 6 || v.Counts[Violation] != 3 || v.Counts[Unverifiable] != 1 || v.Rules()[adp.PermissionDenied] != 2 || !slices.Equal(v.RuleNames(), []adp.Code{adp.PermissionDenied, adp.RoomEnded}) {
		t.Errorf("counts %v, rules %v, names %v", v.Counts, v.Rules(), v.RuleNames())
	}
	if sum := v.Digest.Summary(); sum.Count != 10 || sum.LastHash != w.s.Last.Hash || sum.Genesis != w.s.Genesis {
		t.Errorf("summary %+v", sum)
	}
	// what does not link is not taken
	before := snap(t, v.State)
	for name, r := range map[string]*adp.Record{
		"again":        w.records[9],
		"a gap":        adp.NewRecord(w.records[5].Envelope, testRoom, 12, w.s.Last.Hash, t0),
		"no link":      adp.NewRecord(w.records[5].Envelope, testRoom, 11, noHash, t0),
		"another room": adp.NewRecord(w.records[0].Envelope, "other", 11, w.s.Last.Hash, t0),
	} {
		if err := v.Add(r); err == nil || !strings.Contains(err.Error(), "seq 11") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if snap(t, v.State) != before || v.Digest.Count != 10 {
		t.Error("a broken record was taken")
	}
	if err := NewVerifier(testRoom, nil).Add(adp.NewRecord(w.records[5].Envelope, testRoom, 1, "", t0)); err == nil || !strings.HasPrefix(err.Error(), "seq 1: ") {
		t.Errorf("a room that starts with a message: %v", err)
	}
	b, err := json.Marshal(v.Findings()[0])
	if err != nil || !strings.HasPrefix(string(b), `{"seq":6,"outcome":"violation","rule":"permission_denied","reason":"`) {
		t.Errorf("finding as JSON: %s, %v", b, err)
	}
}

func TestMemoryChain(t *testing.T) {
	var m MemoryChain
	if _, ok := m.SeqOf(noHash); ok {
		t.Error("an empty chain knows an envelope")
	}
	w := peopled(t)
	for _, r := range w.records {
		m.Add(r)
	}
	m.Add(adp.NewRecord(w.records[0].Envelope, testRoom, 5, w.s.Last.Hash, t0))
	if seq, ok := m.SeqOf(w.records[0].Envelope.Hash); !ok || seq != 1 {
		t.Errorf("of an envelope that is there twice, the first place counts: %d %v", seq, ok)
	}
	for _, seq := range []int64{-1, 0, 6} {
		if h, ok := m.HashAt(seq); ok {
			t.Errorf("hash at %d: %s", seq, h)
		}
	}
}

// A room of somebody else that declares types without end is followed all the same; what is over the bound
// is in doubt, and makes no violation.
func TestTypesWithoutEnd(t *testing.T) {
	w := peopled(t)
	many := func(from, to int) (out []any) {
		for i := from; i < to; i++ {
			out = append(out, obj{"type": fmt.Sprintf("many.t%d", i), "kind": "signal", "title": "t", "schema": obj{}})
		}
		return out
	}
	before, doubts := w.s.Registry.Len(), 0
	for _, d := range many(0, 1100) {
		switch v := w.force(w.event(creator, Define, d, nil)); v.Outcome {
		case Unverifiable:
			doubts++
		case Violation:
			t.Fatalf("%+v", v)
		}
	}
	if n := w.s.Registry.Len(); n > 1024 || n+doubts != before+1100 || !w.s.Unresolved {
		t.Errorf("%d types are kept, %d were left out", n, doubts)
	}
	if v := w.force(w.event(speaker, "many.t1099", obj{}, nil)); v.Outcome != Unverifiable {
		t.Errorf("an event of a type that was left out: %+v", v)
	}
	if v := w.force(w.event(creator, Message, say("x"), nil)); v.Outcome == Violation {
		t.Errorf("a message behind it: %+v", v)
	}
	for i := range maxImports + 10 {
		if err := w.s.Advance(w.records[len(w.records)-1], &Change{Registered: []string{fmt.Sprintf("adp:x%d/1.0", i)}, External: []types.PackRef{{URI: fmt.Sprint(i)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.s.Registered) != maxImports || len(w.s.External) != maxImports {
		t.Errorf("%d and %d imports are remembered", len(w.s.Registered), len(w.s.External))
	}
}
