package types

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha3"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func scan(t testing.TB, text string) adp.Value {
	t.Helper()
	v, err := adp.Scan([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func wantCode(t testing.TB, err error, code adp.Code, name string) {
	t.Helper()
	if adp.CodeOf(err) != code {
		t.Errorf("%s: got %v, want code %q", name, err, code)
	}
}

func registered(t testing.TB) map[string]*Definition {
	t.Helper()
	out := map[string]*Definition{}
	for _, id := range RegisteredIDs() {
		d, err := ParseDeclaration(scan(t, `{"use":"`+id+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		defs, _, err := Resolve([]*Declaration{d}, nil, nil, Host, Limits{SchemaBytes: 16 << 10, Types: 64})
		if err != nil {
			t.Fatal(err)
		}
		for _, def := range defs {
			out[def.Type] = def
		}
	}
	return out
}

func TestRegisteredPacks(t *testing.T) {
	want := []string{"adp:reactions/1.0", "adp:deliberation/1.0", "adp:curation/1.0", "adp:moderation/1.0", "adp:realtime/1.0"}
	if !slices.Equal(RegisteredIDs(), want) {
		t.Fatalf("ids are %v", RegisteredIDs())
	}
	if _, ok := RegisteredPack("adp:reactions/2.0"); ok {
		t.Error("a pack that nobody registered")
	}
	for _, id := range want {
		p, ok := RegisteredPack(id)
		if !ok {
			t.Fatalf("no pack %s", id)
		}
		v := scan(t, string(p.Document()))
		if !v.IsCanonical() || v.Get("packs").Len() != 1 {
			t.Errorf("%s: not the canonical document of one pack", id)
		}
		for pack := range v.Get("packs").Elements() {
			if !pack.Get("id").Is(id) {
				t.Errorf("%s calls itself %s", id, pack.Get("id").Raw())
			}
			for typ := range pack.Get("types").Elements() {
				if !typ.Get("version").Is("1.0") || !typ.Get("status").Is("active") ||
					typ.Get("description").Text() == "" || typ.Get("instructions").Text() == "" {
					t.Errorf("%s: %s lacks version, status or words", id, typ.Get("type").Raw())
				}
			}
		}
	}
	ms := []Role{Moderator, Speaker}
	facts := []struct {
		typ       string
		kind      Kind
		roles     []Role
		rate, max int64
	}{
		{"reaction.create", Signal, nil, 30, 0},
		{"question.create", Message, nil, 0, 0}, {"proposal.create", Message, nil, 0, 0},
		{"poll.create", Message, nil, 0, 0}, {"poll.vote", Signal, ms, 0, 0},
		{"resource.add", Message, nil, 0, 0}, {"graph.update", Control, nil, 0, 0}, {"artifact.create", Control, nil, 0, 0},
		{"turn.update", Control, nil, 0, 0}, {"steer.create", Signal, ms, 0, 0},
		{"session.offer", Signal, ms, 120, 262144}, {"session.answer", Signal, ms, 120, 262144},
		{"session.candidate", Signal, ms, 120, 16384}, {"session.close", Signal, ms, 120, 0},
	}
	defs := registered(t)
	if len(defs) != len(facts) {
		t.Errorf("%d types, want %d", len(defs), len(facts))
	}
	for _, f := range facts {
		d := defs[f.typ]
		if d == nil || d.Kind != f.kind || !slices.Equal(d.Roles, f.roles) || d.RateHint != f.rate || d.MaxPayload != f.max || d.Status != Active {
			t.Errorf("%s is %+v", f.typ, d)
		}
	}
}

const (
	h1 = `"GDt8oHZQfQ3jl5ZUfyNxKZu07yAJdDYuaw_jf_JjLYs"`
	h2 = `"cJg9aS9kgYX-vm1vpgdjCuaGSffm_EW5RoAJbAbk-ts"`
	a1 = `"did:agent:GDt8oHZQfQ3jl5ZUfyNxKZu07yAJdDYuaw_jf_JjLYs"`
)

// Each row: a payload with every member, what is required of it, and members
// whose values must be refused.
var packRows = []struct {
	typ      string
	full     map[string]string
	required []string
	bad      map[string][]string
	noRefs   bool
}{
	{typ: "reaction.create", noRefs: true,
		full:     map[string]string{"event_id": h1, "reaction": `"agree"`, "score": "-1"},
		required: []string{"event_id", "reaction"},
		bad: map[string][]string{"event_id": {`"x"`, "1"}, "score": {"1.01", "-2", `"1"`},
			"reaction": {`""`, `"` + strings.Repeat("x", 65) + `"`}, "references": {"[]"}}},
	{typ: "question.create",
		full: map[string]string{"question": `"q"`, "question_id": `"1"`, "target_perspectives": `["a","b"]`, "basis": `"graph_gap"`,
			"resource_event_ids": "[" + h1 + "]", "priority": "0.5"},
		required: []string{"question"},
		bad: map[string][]string{"question": {`""`, "null"}, "question_id": {`""`}, "target_perspectives": {`["a","a"]`, `[""]`, `"a"`},
			"basis": {`"whim"`}, "resource_event_ids": {`["x"]`, "[" + h1 + "," + h1 + "]"}, "priority": {"1.5", "-0.1"}}},
	{typ: "proposal.create",
		full:     map[string]string{"proposal_id": `"p"`, "title": `"t"`, "body": `"b"`, "content_type": `"text/plain"`, "resource_event_ids": "[]"},
		required: []string{"proposal_id", "title", "body"},
		bad:      map[string][]string{"proposal_id": {`""`}, "title": {`""`}, "body": {`""`, "{}"}, "content_type": {"1"}, "resource_event_ids": {`[1]`}}},
	{typ: "poll.create",
		full: map[string]string{"poll_id": `"p"`, "question": `"q"`, "options": `[{"id":"a","label":"A"},{"id":"b","label":"B","description":""}]`,
			"min_choices": "1", "max_choices": "2", "closes_at": "1779757760000"},
		required: []string{"poll_id", "question", "options"},
		bad: map[string][]string{"poll_id": {`""`}, "question": {`""`}, "min_choices": {"0", "1.5"}, "max_choices": {"0"}, "closes_at": {"-1", `"x"`, "0.5"},
			"options": {"[]", `[{"id":"a"}]`, `[{"label":"a"}]`, `[{"id":"","label":"a"}]`, `[{"id":"a","label":""}]`, `[{"id":"a","label":"b","x":1}]`}}},
	{typ: "poll.vote", noRefs: true,
		full:     map[string]string{"poll_event_id": h1, "option_ids": `["a","b"]`},
		required: []string{"poll_event_id", "option_ids"},
		bad:      map[string][]string{"poll_event_id": {`"p"`}, "option_ids": {"[]", `["a","a"]`, `[""]`, `"a"`}, "references": {"[]"}}},
	{typ: "resource.add",
		full: map[string]string{"resource_type": `"file"`, "uri": `"https://example.com/"`, "title": `""`, "retrieved_at": "0",
			"content_digest": `"sha256:x"`, "excerpt": `""`},
		required: []string{"resource_type"},
		bad: map[string][]string{"resource_type": {`""`}, "uri": {"1"}, "title": {"1"}, "retrieved_at": {"-1", "1.5"},
			"content_digest": {`""`}, "excerpt": {"[]"}}},
	{typ: "graph.update",
		full: map[string]string{"operation": `"upsert_node"`, "node": graphNode, "nodes": "[" + graphNode + "]", "node_id": `"a"`,
			"node_ids": `["a"]`, "from_parent_id": `"b"`, "to_parent_id": `"c"`},
		required: []string{"operation", "node"},
		bad: map[string][]string{"operation": {`"split"`}, "nodes": {"{}"}, "node_ids": {"[]", `["a","a"]`},
			"node_id": {"1"}, "from_parent_id": {"null"}, "to_parent_id": {"null"},
			"node": {`{"id":"a"}`, `{"title":"a"}`, `{"id":"","title":"a"}`, `{"id":"a","title":""}`, `{"id":"a","title":"b","x":1}`,
				`{"id":"a","title":"b","status":"done"}`, `{"id":"a","title":"b","children":[{"id":"c"}]}`, `{"id":"a","title":"b","parent_id":1}`,
				`{"id":"a","title":"b","resource_event_ids":["x"]}`, `{"id":"a","title":"b","extra":1}`}}},
	{typ: "artifact.create",
		full: map[string]string{"artifact_id": `"a"`, "format": `"text/markdown"`, "title": `"t"`, "type": `"report"`, "uri": `"https://example.com/"`,
			"content_digest": `"x"`, "resource_event_ids": "[" + h1 + "]", "discussion_event_ids": "[" + h2 + "]", "graph_event_id": h1},
		required: []string{"artifact_id", "format", "title"},
		bad: map[string][]string{"artifact_id": {`""`}, "format": {`""`}, "title": {`""`}, "discussion_event_ids": {"[1]"},
			"resource_event_ids": {"[" + h1 + "," + h1 + "]"}, "graph_event_id": {`"x"`}}},
	{typ: "turn.update",
		full: map[string]string{"turn_id": "1", "speaker": a1, "scope": `"task"`, "state": `"handoff"`, "claim_id": `"c"`, "handoff_to": a1,
			"intent": `""`, "topic": `""`, "expires_at": "1", "lease_until": "1", "reason": `""`},
		required: []string{"turn_id", "speaker"},
		bad: map[string][]string{"turn_id": {"0", "1.5"}, "speaker": {h1, `"did:agent:x"`}, "scope": {`"room"`}, "state": {`"open"`},
			"claim_id": {`""`}, "handoff_to": {`"x"`}, "intent": {"1"}, "topic": {"1"}, "expires_at": {"-1"}, "lease_until": {"1.5"}, "reason": {"1"}}},
	{typ: "steer.create",
		full:     map[string]string{"instruction": `"i"`, "target": `"t"`, "priority": "1"},
		required: []string{"instruction"},
		bad:      map[string][]string{"instruction": {`""`}, "target": {"1"}, "priority": {"2", `"high"`}}},
	{typ: "session.offer",
		full: map[string]string{"session_id": `"s"`, "session_type": `"webrtc"`, "media": `["audio","data"]`,
			"description": `{"type":"offer","sdp":"v=0","more":1}`, "to": "[" + a1 + "]", "topology": `"sfu"`, "transfers": transfers, "expires_at": "1"},
		required: []string{"session_id", "session_type", "media", "description"},
		bad: map[string][]string{"session_id": {`""`}, "session_type": {`"sip"`}, "media": {"[]", `["audio","audio"]`, `["smell"]`},
			"description": {`{"type":"answer","sdp":"v"}`, `{"type":"offer"}`, `{"sdp":"v"}`, `{"type":"offer","sdp":""}`}, "to": {`["x"]`, "[" + a1 + "," + a1 + "]"},
			"topology": {`"mesh"`}, "expires_at": {"-1"},
			"transfers": {`[{"file_name":"f"}]`, `[{"transfer_id":""}]`, `[{"transfer_id":"t","size_bytes":-1}]`, `[{"transfer_id":"t","x":1}]`}}},
	{typ: "session.answer",
		full: map[string]string{"session_id": `"s"`, "offer_event_id": h1, "description": `{"type":"answer","sdp":"v=0"}`,
			"accepted_media": `["audio"]`, "transfers": transfers},
		required: []string{"session_id", "offer_event_id", "description"},
		bad: map[string][]string{"session_id": {`""`}, "offer_event_id": {`"x"`}, "description": {`{"type":"offer","sdp":"v"}`},
			"accepted_media": {`["smell"]`}, "expires_at": {"1"}}},
	{typ: "session.candidate",
		full: map[string]string{"session_id": `"s"`, "candidate": `{"candidate":"c","sdp_mid":"0","sdp_mline_index":0,"username_fragment":"u"}`,
			"end_of_candidates": "false"},
		required: []string{"session_id", "candidate"},
		bad: map[string][]string{"session_id": {`""`}, "end_of_candidates": {"1"},
			"candidate": {`{}`, `{"candidate":""}`, `{"candidate":"c","sdp_mline_index":-1}`, `{"candidate":"c","x":1}`}}},
	{typ: "session.close",
		full:     map[string]string{"session_id": `"s"`, "reason": `"done"`},
		required: []string{"session_id"},
		bad:      map[string][]string{"session_id": {`""`}, "reason": {"1"}}},
}

const (
	graphNode = `{"id":"a","title":"A","parent_id":null,"summary":"","status":"open","resource_event_ids":[` + h1 + `],"discussion_event_ids":[],
		"children":[{"id":"b","title":"B","parent_id":"a","children":[{"id":"c","title":"C"}]}],"extra":{"x":[1]}}`
	transfers = `[{"transfer_id":"t","file_name":"f","size_bytes":0,"mime_type":"m","content_digest":"d","extra":{}}]`
)

func object(members map[string]string) string {
	var b strings.Builder
	b.WriteByte('{')
	for name, v := range members {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + name + `":` + v)
	}
	return b.String() + "}"
}

func with(m map[string]string, name, v string) map[string]string {
	out := map[string]string{name: v}
	for k, old := range m {
		if k != name {
			out[k] = old
		}
	}
	return out
}

func without(m map[string]string, name string) map[string]string {
	out := with(m, name, "")
	delete(out, name)
	return out
}

func TestRegisteredPayloads(t *testing.T) {
	defs := registered(t)
	if len(packRows) != len(defs) {
		t.Fatalf("%d rows for %d types", len(packRows), len(defs))
	}
	for _, row := range packRows {
		d := defs[row.typ]
		full := with(row.full, "extra", `{"any":[{"thing":null}]}`)
		if !row.noRefs {
			full = with(full, "references", "["+h1+","+h2+"]")
		}
		accept := func(m map[string]string, why string) {
			t.Helper()
			if err := d.Check(scan(t, object(m))); err != nil {
				t.Errorf("%s %s: %v", row.typ, why, err)
			}
		}
		refuse := func(m map[string]string, why string) {
			t.Helper()
			wantCode(t, d.Check(scan(t, object(m))), adp.PayloadSchemaViolation, row.typ+" "+why)
		}
		accept(full, "with every member")
		least := map[string]string{}
		for _, name := range row.required {
			least[name] = full[name]
			refuse(without(full, name), "without "+name)
		}
		accept(least, "with the required members only")
		for name := range full {
			if !slices.Contains(row.required, name) {
				accept(without(full, name), "without the optional "+name)
			}
		}
		refuse(with(full, "unknown", "1"), "with an unknown member")
		refuse(with(full, "extra", "1"), "with an extra that is no object")
		if !row.noRefs {
			refuse(with(full, "references", "["+h1+","+h1+"]"), "with a reference twice")
			refuse(with(full, "references", `["x"]`), "with a reference that is no hash")
		}
		for name, values := range row.bad {
			for _, v := range values {
				refuse(with(full, name, v), "with "+name+" "+v)
			}
		}
		wantCode(t, d.Check(scan(t, "[]")), adp.PayloadSchemaViolation, row.typ+" as an array")
	}
}

func TestGraphOperations(t *testing.T) {
	d := registered(t)["graph.update"]
	for op, needs := range map[string][]string{
		"upsert_node": {"node"}, "replace_snapshot": {"nodes"}, "delete_node": {"node_id"}, "mark_resolved": {"node_id"},
		"move_node": {"node_id", "to_parent_id"}, "merge_nodes": {"node_ids", "node_id"},
	} {
		p := map[string]string{"operation": `"` + op + `"`}
		for _, n := range needs {
			p[n] = map[string]string{"node": graphNode, "nodes": "[]", "node_id": `"a"`, "node_ids": `["b"]`, "to_parent_id": `"c"`}[n]
		}
		if err := d.Check(scan(t, object(p))); err != nil {
			t.Errorf("%s: %v", op, err)
		}
		for _, n := range needs {
			wantCode(t, d.Check(scan(t, object(without(p, n)))), adp.PayloadSchemaViolation, op+" without "+n)
		}
	}
	c := registered(t)["session.candidate"]
	if err := c.Check(scan(t, `{"session_id":"s","end_of_candidates":true}`)); err != nil {
		t.Error(err)
	}
	wantCode(t, c.Check(scan(t, `{"session_id":"s","end_of_candidates":false}`)), adp.PayloadSchemaViolation, "no candidate and no end")
}

func TestDigest(t *testing.T) {
	raw := []byte(" {}\n")
	two, three := sha256.Sum256(raw), sha3.Sum256(raw)
	for _, d := range []string{"sha256:" + adp.Encode(two[:]), "sha3-256:" + adp.Encode(three[:])} {
		if err := Digest(d, raw); err != nil {
			t.Error(err)
		}
		wantCode(t, Digest(d, []byte("{}")), adp.PackUnavailable, "other bytes")
	}
	wantCode(t, Digest("sha256:"+adp.Encode(three[:]), raw), adp.PackUnavailable, "the other hash")
	for _, d := range []string{"", "sha256:", "sha512:" + adp.Encode(two[:]), "sha256:" + adp.Encode(two[:]) + "=", "sha256:" + adp.Encode(two[:31]), adp.Encode(two[:]), "SHA256:" + adp.Encode(two[:])} {
		wantCode(t, Digest(d, raw), adp.InvalidEvent, d)
	}
}

const goodPack = `{"protocol":"agent-discourse/1.0","packs":[{"id":"x","title":"X","types":[{"type":"a.b","kind":"signal","title":"T","schema":{}}]}]}`

func TestParsePack(t *testing.T) {
	p, err := ParsePack([]byte(strings.Replace(goodPack, `"id":"x",`, ` "id" : "x" , "description":"","extra":{},`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if !scan(t, string(p.Document())).IsCanonical() {
		t.Error("Document is not canonical")
	}
	for _, change := range [][2]string{
		{goodPack, ""}, {goodPack, "[]"}, {goodPack, "{}"}, {goodPack, goodPack + "x"},
		{"1.0", "2.0"}, {`"protocol"`, `"Protocol"`}, {`"packs"`, `"more":1,"packs"`}, {`"id":"x",`, ""}, {`"id":"x"`, `"id":" "`}, {`"id":"x"`, `"id":1`},
		{`"title":"X",`, ""}, {`"title":"X"`, `"title":""`}, {`"title":"X"`, `"title":"X","description":1`}, {`"title":"X"`, `"title":"X","extra":[]`},
		{`"title":"X"`, `"title":"X","version":"1"`}, {`"kind":"signal"`, `"kind":"noise"`}, {`"a.b"`, `"room.b"`}, {`"a.b"`, `"a"`},
		{`"id":"x"`, `"id":"x","id":"x"`},
	} {
		raw := strings.Replace(goodPack, change[0], change[1], 1)
		_, err := ParsePack([]byte(raw))
		wantCode(t, err, adp.PackUnavailable, raw)
	}
	for _, raw := range []string{
		`{"protocol":"agent-discourse/1.0","packs":[]}`, `{"protocol":"agent-discourse/1.0","packs":{}}`, `{"protocol":"agent-discourse/1.0","packs":[1]}`,
		`{"protocol":"agent-discourse/1.0","packs":[{"id":"x","title":"X","types":[]}]}`, `{"protocol":"agent-discourse/1.0","packs":[{"id":"x","title":"X"}]}`,
	} {
		_, err := ParsePack([]byte(raw))
		wantCode(t, err, adp.PackUnavailable, raw)
	}
}

func FuzzParsePack(f *testing.F) {
	f.Add([]byte(goodPack))
	for _, id := range RegisteredIDs() {
		p, _ := RegisteredPack(id)
		f.Add(p.Document())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := ParsePack(raw)
		if err != nil {
			wantCode(t, err, adp.PackUnavailable, "fuzz")
			return
		}
		again, err := ParsePack(p.Document())
		if err != nil || !bytes.Equal(again.Document(), p.Document()) {
			t.Fatalf("the document does not read back: %v", err)
		}
		decl, err := ParseDeclaration(scan(t, `{"pack":"https://example.com/","digest":"sha256:GDt8oHZQfQ3jl5ZUfyNxKZu07yAJdDYuaw_jf_JjLYs"}`))
		if err != nil {
			t.Fatal(err)
		}
		defs, unresolved, err := Resolve([]*Declaration{decl}, nil, map[string]*Pack{decl.pack.Digest: p}, Replay, Limits{})
		if err != nil {
			wantCode(t, err, adp.InvalidEvent, "fuzz")
			return
		}
		if unresolved || len(defs) == 0 {
			t.Fatal("a pack without types")
		}
		for _, d := range defs {
			if err := d.Check(scan(t, "{}")); err != nil && adp.CodeOf(err) != adp.PayloadSchemaViolation && !errors.Is(err, ErrUnjudged) {
				t.Fatal(err)
			}
		}
	})
}
