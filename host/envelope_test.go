package host_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

// plusL is the same signature with S + L for S: the equation holds, the
// encoding is not allowed.
func plusL(t testing.TB, signature string) string {
	t.Helper()
	raw, err := adp.Decode(signature)
	if err != nil {
		t.Fatal(err)
	}
	s := slices.Clone(raw[32:])
	slices.Reverse(s)
	order, _ := new(big.Int).SetString("27742317777372353535851937790883648493", 10)
	order.Add(order, new(big.Int).Lsh(big.NewInt(1), 252))
	sum := new(big.Int).Add(new(big.Int).SetBytes(s), order).FillBytes(make([]byte, 32))
	slices.Reverse(sum)
	return adp.Encode(append(raw[:32:32], sum...))
}

func TestEnvelope(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(nil)
	path, head := "/v1/rooms/"+id, w.headOf(id)
	spoil := func(member string, do func(string) string) []byte {
		env := w.event(a, room.Message, say("x"), head, nil)
		v, err := adp.Scan(env)
		if err != nil {
			t.Fatal(err)
		}
		old := v.Get(member).Text()
		return bytes.Replace(env, []byte(`"`+old+`"`), []byte(`"`+do(old)+`"`), 1)
	}
	to := func(s string) func(string) string { return func(string) string { return s } }
	sig := make([]byte, 64)
	_, _ = rand.Read(sig)
	w.post(path, spoil("hash", to(noHash()))).refused(400, adp.InvalidEventHash)
	w.post(path, spoil("signature", to(adp.Encode(sig)))).refused(400, adp.InvalidSignature)
	w.post(path, bytes.Replace(w.event(a, room.Message, say("x"), head, nil), []byte(`"content":"x"`), []byte(`"content":"changed"`), 1)).refused(400, adp.InvalidEventHash)
	for _, do := range []func(string) string{
		func(s string) string { return s + "=" },
		func(s string) string { return s + `\n` },
		func(s string) string { return s[:85] + string(s[85]+1) },
		func(s string) string { return plusL(t, s) },
		func(s string) string { return s[:80] },
	} {
		w.post(path, spoil("signature", do)).denied(adp.InvalidEvent, adp.InvalidSignature)
	}
	env := w.event(a, room.Message, say("x"), head, nil)
	w.post(path, append(env[:len(env)-1:len(env)-1], `,"note":1}`...)).refused(400, adp.InvalidEvent)
	for _, c := range []struct {
		over obj
		code adp.Code
	}{
		{obj{"colour": "red"}, adp.InvalidEvent}, {obj{"protocol": "agent-discourse/2.0"}, adp.InvalidEvent}, {obj{"nonce": 0}, adp.InvalidEvent},
		{obj{"created_at": t0 - 301*second}, adp.TimestampOutOfWindow}, {obj{"created_at": t0 + 301*second}, adp.TimestampOutOfWindow},
		{obj{"actor": "did:agent:short"}, ""}, {obj{"actor": string(a.id) + "="}, ""}, {obj{"actor": string(newAgent(t).id)}, adp.InvalidSignature},
		{obj{"room_id": nowhere}, adp.InvalidEvent}, {obj{"room_id": nil}, adp.InvalidEvent}, {obj{"base_seq": nil}, adp.InvalidEvent},
		{obj{"base_hash": "x"}, adp.InvalidEvent}, {obj{"type": nil}, adp.InvalidEvent}, {obj{"created_at": 1.5}, adp.InvalidEvent},
	} {
		got := w.on(head, a, room.Message, say("x"), c.over)
		if c.code == "" {
			got.denied(adp.InvalidEvent, adp.InvalidActor)
			continue
		}
		got.refused(400, c.code)
	}
	for _, edge := range []int64{-300 * second, 300 * second} { // the window is five minutes, its ends included
		w.on(w.headOf(id), a, room.Message, say("x"), obj{"created_at": t0 + edge}).ok(200)
	}
	if n := len(w.records(id, nil)); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
}

func TestSmallOrderKey(t *testing.T) {
	w := newWorld(t, nil)
	_, id := w.open(nil)
	actor := "did:agent:" + adp.Encode(append([]byte{1}, make([]byte, 31)...))
	env := w.event(newAgent(t), room.Join, obj{"role": "speaker"}, w.headOf(id), obj{"actor": actor})
	v, err := adp.Scan(env)
	if err != nil {
		t.Fatal(err)
	}
	env = bytes.Replace(env, []byte(v.Get("signature").Text()), []byte(adp.Encode(append([]byte{1}, make([]byte, 63)...))), 1)
	w.post("/v1/rooms/"+id, env).denied(adp.InvalidSignature, adp.InvalidActor)
}

func TestStrictText(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(nil)
	path := "/v1/rooms/" + id
	good := string(w.event(a, room.Message, say("x"), w.headOf(id), nil))
	repaired := string(w.event(a, room.Message, say("\ufffd"), w.headOf(id), nil)) // its hash is that of the repaired text
	extra := func(s string) string {
		return strings.Replace(good, `"content":"x"`, `"content":"x","extra":{"n":`+s+`}`, 1)
	}
	for name, text := range map[string]string{
		"duplicate member":             strings.Replace(good, `"payload":{`, `"payload":{"content":"y",`, 1),
		"duplicate top member":         strings.Replace(good, `"hash":`, `"hash":"x","hash":`, 1),
		"duplicate by escape":          strings.Replace(good, `"payload":{`, `"payload":{"c\u006fntent":"y",`, 1),
		"lone surrogate":               strings.Replace(good, `"content":"x"`, `"content":"\ud800"`, 1),
		"lone surrogate, repaired":     strings.Replace(repaired, "\ufffd", `\ud800`, 1),
		"invalid UTF-8, repaired":      strings.Replace(repaired, "\ufffd", "\xff", 1),
		"member name in another case":  strings.Replace(good, `"signature":`, `"Signature":`, 1),
		"nested too deep":              extra(strings.Repeat("[", 70) + strings.Repeat("]", 70)),
		"big integer":                  extra("9007199254740993"),
		"big integer with a point":     extra("9007199254740993.0"),
		"big integer with an exponent": extra("1e21"),
		"no double":                    extra("1e400"),
		"leading zero":                 extra("01"),
		"NaN":                          extra("NaN"),
		"comment":                      good + "//",
		"trailing bytes":               good + "{}",
		"byte order mark":              "\ufeff" + good,
		"not JSON":                     "{", "empty": "", "spaces": "  \n", "array": "[]", "null": "null", "text": `"x"`, "number": "1",
		"invalid UTF-8":            good[:len(good)-1] + ",\"\xff\":1}",
		"very deep":                strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"very deep and cut":        strings.Repeat(`{"a":`, 80_000),
		"a zero byte":              strings.Replace(good, `"content":"x"`, "\"content\":\"\x00\"", 1),
		"a string without its end": `{"event":"`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, to := range []string{path, "/v1/rooms"} {
				got := w.in(t).post(to, []byte(text))
				got.refused(400)
				got.denied(adp.InvalidEvent, adp.InvalidRequest)
			}
		})
	}
	if n := len(w.records(id, nil)); n != 1 {
		t.Errorf("%d records, want 1", n)
	}
}

// The text of an event need not be canonical; what is stored is.
func TestLooseText(t *testing.T) {
	w := newWorld(t, nil)
	a, id := w.open(nil)
	deep := any([]any{})
	for range 39 {
		deep = []any{deep}
	}
	extra := obj{"\ufb33": 1, "😀": 2, "a": 100, "b": 0, "c": 0.002, "d": "A/é\u2028\u007f", "e": deep} // UTF-16 order puts 😀 first
	raw := string(w.event(a, room.Message, with(say("x"), obj{"extra": extra}), w.headOf(id), nil))
	for _, r := range [][2]string{{`"a":100`, `"a" :1.0E2`}, {`"b":0`, `"b":-0.0`}, {`"c":0.002`, `"c":2e-3`}, {`"d":"A/é`, `"d":"\u0041\/\u00e9`}, {`{"event"`, " {\n\"event\""}} {
		if !strings.Contains(raw, r[0]) {
			t.Fatalf("no %s in %s", r[0], raw)
		}
		raw = strings.Replace(raw, r[0], r[1], 1)
	}
	rec := w.post("/v1/rooms/"+id, []byte(raw)).ok(200)
	if !rec.IsCanonical() {
		t.Errorf("the record is not canonical: %s", rec.Raw())
	}
	numbers := obj{"a": 0.1, "b": 1e-21, "c": 1e-7, "d": 333333333.33333329, "e": 4.5, "f": 2e-3, "g": 1.5e-30, "h": -0.5, "i": 9007199254740991, "j": 5e-324}
	w.act(a, id, room.Message, with(say("numbers"), obj{"extra": numbers})).ok(200)
	if n := len(w.records(id, nil)); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
}

func TestHead(t *testing.T) {
	w := newWorld(t, nil)
	c, id := w.open(obj{"types": []any{obj{"use": "adp:reactions/1.0"}}})
	old := w.headOf(id)
	a, b := w.member(id, "speaker"), w.member(id, "speaker")
	answers := parallel(2, func(i int) answer { return w.on(old, []*agent{a, b}[i], room.Message, say("x"), nil) })
	slices.SortFunc(answers, func(x, y answer) int { return x.status - y.status })
	won, lost := answers[0].ok(200), answers[1].refused(409, adp.RoomHeadMismatch)
	if d := lost.data(); num(d.Get("current_seq")) != num(won.Get("seq")) || d.Get("current_hash").Text() != won.Get("hash").Text() || num(d.Get("base_seq")) != old.seq ||
		!strings.HasSuffix(d.Get("events_url").Text(), fmt.Sprintf("/events?after_seq=%d", old.seq)) {
		t.Errorf("data %s", d.Raw())
	}
	vote := obj{"event_id": won.Get("envelope").Get("hash").Text(), "reaction": "agree", "score": 0.5}
	w.on(old, a, "reaction.create", vote, nil).ok(200) // a signal rests on any record
	w.on(old, a, "reaction.create", vote, obj{"base_hash": noHash()}).refused(409, adp.BaseRecordMismatch)
	w.on(old, a, "reaction.create", vote, obj{"base_seq": 999}).refused(409, adp.BaseRecordMismatch)
	r := w.resource(id, nil)
	if num(r.Get("head").Get("seq")) != num(won.Get("seq")) || num(r.Get("seq")) != num(won.Get("seq"))+1 {
		t.Errorf("resource %s", r.Raw())
	}
	w.on(old, c, room.Update, obj{"agenda": "z"}, nil).refused(409, adp.RoomHeadMismatch)
	w.act(c, id, room.Update, obj{"agenda": "z"}).ok(200)
	w.records(id, nil)
}

// parallel does n things at once.
func parallel[T any](n int, do func(i int) T) []T {
	all := make([]T, n)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			all[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	return all
}

func count(all []answer, status int, code adp.Code) (n int) {
	for _, a := range all {
		if a.status == status && a.code() == code {
			n++
		}
	}
	return n
}

func TestManyWriters(t *testing.T) {
	w := newWorld(t, nil)
	_, id := w.open(nil)
	agents := make([]*agent, 50)
	for i := range agents {
		agents[i] = w.member(id, "speaker")
	}
	head := w.headOf(id)
	all := parallel(50, func(i int) answer { return w.on(head, agents[i], room.Message, say("x"), nil) })
	if count(all, 200, "") != 1 || count(all, 409, adp.RoomHeadMismatch) != 49 {
		t.Errorf("%d won, %d lost", count(all, 200, ""), count(all, 409, adp.RoomHeadMismatch))
	}
	if n := len(w.records(id, nil)); n != 52 {
		t.Errorf("%d records, want 52", n)
	}
	_, small := w.open(obj{"policy": obj{"max_speakers": 3}})
	head = w.headOf(small)
	all = parallel(20, func(i int) answer { return w.on(head, agents[i], room.Join, obj{"role": "speaker"}, nil) })
	if count(all, 200, "") != 2 || count(all, 409, adp.MaxSpeakersExceeded) != 18 {
		t.Errorf("%d joined, %d found it full", count(all, 200, ""), count(all, 409, adp.MaxSpeakersExceeded))
	}
}

func TestOnlyTheHead(t *testing.T) {
	w := newWorld(t, nil)
	finding := obj{"type": "review.finding", "kind": "message", "title": "F", "schema": obj{}}
	c, id := w.open(obj{"types": []any{obj{"use": "adp:moderation/1.0"}, finding}})
	w.member(id, "observer")
	r := w.resource(id, nil)
	head, last := r.Get("head"), at{id, num(r.Get("seq")), r.Get("hash").Text()}
	if last.seq != num(head.Get("seq"))+1 {
		t.Fatalf("a join moved the head: %s", r.Raw())
	}
	h := at{id, num(head.Get("seq")), head.Get("hash").Text()}
	for _, base := range []at{last, {id, last.seq, h.hash}, {id, h.seq, last.hash}, {id, h.seq, noHash()}} {
		for typ, p := range map[string]obj{room.Message: say("x"), "review.finding": {}, "turn.update": {"turn_id": 1, "speaker": c.id}, room.Define: finding,
			room.Update: {"agenda": "x"}, room.Close: {}} {
			w.on(base, c, typ, p, nil).refused(409, adp.RoomHeadMismatch)
		}
	}
	w.act(c, id, "turn.update", obj{"turn_id": 1, "speaker": c.id}).ok(200)
	if got := w.headOf(id).seq; got != last.seq+1 {
		t.Errorf("the head is %d, want %d", got, last.seq+1)
	}
}
