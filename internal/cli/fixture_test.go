package cli

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
)

const (
	fixtureRoom  = "d8ftedhpqhsusbg001tg"
	fixtureURL   = "https://host.example/v1/rooms/" + fixtureRoom
	fixtureStart = int64(1779753600000)
	fixtureEnd   = fixtureStart + 3600_000
)

// chainBuilder makes the records of one room as a host that accepts everything would.
type chainBuilder struct {
	records []*adp.Record
	nonce   int64
}

func (b *chainBuilder) add(key ed25519.PrivateKey, typ string, payload any) {
	b.nonce++
	at := fixtureStart + 1000*b.nonce
	d := adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: at, Nonce: b.nonce, Payload: payload}
	pre := ""
	if n := len(b.records); n > 0 {
		last := b.records[n-1]
		pre, d.RoomID, d.BaseSeq, d.BaseHash = last.Hash, fixtureRoom, last.Seq, last.Hash
		for _, r := range b.records { // the head
			if t := r.Envelope.Type; t != room.Join && t != "ping.send" {
				d.BaseSeq, d.BaseHash = r.Seq, r.Hash
			}
		}
	}
	e, err := adp.Sign(key, d)
	if err != nil {
		panic(err)
	}
	b.records = append(b.records, adp.NewRecord(e, fixtureRoom, b.nonce, pre, at))
}

func (b *chainBuilder) create(types ...any) {
	payload := map[string]any{"topic": "Proofs", "visibility": "public", "start_time": fixtureStart, "end_time": fixtureEnd}
	if types != nil {
		payload["types"] = types
	}
	b.add(seeded(1), room.Create, payload)
}

func (b *chainBuilder) say(key ed25519.PrivateKey, text string) {
	b.add(key, room.Message, map[string]any{"content_type": "text/plain", "content": text})
}

// seal makes the archive of what was built.
func (b *chainBuilder) seal(packs map[string]*types.Pack, extra map[string]json.RawMessage) (manifest, bundle []byte) {
	v := room.NewVerifier(fixtureRoom, packs)
	for _, r := range b.records {
		if err := v.Add(r); err != nil {
			panic(err)
		}
	}
	return sealManifest(adp.Manifest{Host: "host.example", URL: fixtureURL, GeneratedAt: fixtureEnd, Summary: v.Digest.Summary(),
		Room: v.State.Resource(fixtureURL, fixtureEnd), Extra: extra}, b.records)
}

// fixtures are archives, good and bad, by name.
var fixtures = sync.OnceValue(func() map[string][]byte {
	good := &chainBuilder{}
	good.create()
	good.add(seeded(2), room.Join, map[string]any{"role": "speaker"})
	for i := range 10 {
		good.say(seeded(byte(1+i%2)), fmt.Sprintf("claim %d", i))
	}
	good.add(seeded(1), room.Close, map[string]any{})
	manifest, bundle := good.seal(nil, nil)
	lines := bytes.SplitAfter(bundle, []byte("\n"))
	lines = lines[:len(lines)-1]
	join := func(lines ...[]byte) []byte { return bytes.Join(lines, nil) }

	out := map[string][]byte{"good": bundle, "manifest": manifest, "records": join(lines[1:]...)}
	out["array"] = []byte("[\n" + strings.ReplaceAll(strings.TrimSpace(string(join(lines[1:]...))), "\n", " ,\n") + "]\n")
	out["tampered"] = bytes.Replace(bundle, []byte("claim 4"), []byte("claim 5"), 1)
	red, err := good.records[6].Redact()
	if err != nil {
		panic(err)
	}
	out["withheld"] = join(append(append(append([][]byte(nil), lines[:7]...), red.JSON(), []byte("\n")), lines[8:]...)...)
	out["withheld-forged"] = bytes.Replace(out["withheld"], []byte(red.Envelope.Hash), []byte(good.records[5].Envelope.Hash), 1)
	red, err = good.records[1].Redact()
	if err != nil {
		panic(err)
	}
	out["withheld-join"] = join(append(append(append([][]byte(nil), lines[:2]...), red.JSON(), []byte("\n")), lines[3:]...)...)
	out["cut"] = join(lines[:len(lines)-2]...)
	out["cut-in-line"] = bundle[:len(bundle)-40]
	out["reordered"] = join(append(append(append([][]byte(nil), lines[:6]...), lines[7], lines[6]), lines[8:]...)...)
	out["long-line"] = join(lines[0], lines[1], []byte(`{"a":"`+strings.Repeat("x", maxRecordText)+"\"}\n"))
	out["long-element"] = []byte("[" + string(lines[1]) + `,"` + strings.Repeat("x", 3*maxRecordText) + `"]`)
	out["array-open"] = out["array"][:len(out["array"])-2]
	out["array-more"] = append(append([]byte(nil), out["array"]...), "{}"...)
	out["empty-line"] = join(lines[0], lines[1], []byte("\n"), join(lines[2:]...))
	out["manifest-only"] = lines[0]
	out["respelled"] = bytes.ReplaceAll(bundle, []byte("\n{"), []byte("\n{ "))
	out["bad-manifest"] = bytes.Replace(bundle, []byte(`"first_seq":1`), []byte(`"first_seq":2`), 1)
	_, other := (&chainBuilder{records: good.records[:5]}).seal(nil, nil)
	out["other-manifest"] = join(append([][]byte{bytes.SplitAfter(other, []byte("\n"))[0]}, lines[1:]...)...)

	bad := &chainBuilder{}
	bad.create()
	for i := range 25 {
		bad.say(seeded(9), fmt.Sprintf("I never joined \u202e%d", i))
	}
	_, out["violations"] = bad.seal(nil, nil)

	pack := []byte(`{"protocol":"agent-discourse/1.0", "packs":[{"id":"x:ping/1.0","title":"Ping","types":[{"type":"ping.send","kind":"signal","title":"Ping","schema":{"type":"object"}}]}]}`)
	sum := sha256.Sum256(pack)
	ref := map[string]string{"pack": "https://packs.example/ping.json", "digest": "sha256:" + adp.Encode(sum[:])}
	external := &chainBuilder{}
	external.create(ref)
	external.add(seeded(1), "ping.send", map[string]any{})
	_, out["no-pack"] = external.seal(nil, nil)
	parsed, err := types.ParsePack(pack)
	if err != nil {
		panic(err)
	}
	withSource := func(raw []byte) []byte {
		sources, err := json.Marshal([]map[string]string{{"pack": ref["pack"], "digest": ref["digest"], "raw": adp.Encode(raw)}})
		if err != nil {
			panic(err)
		}
		_, b := external.seal(map[string]*types.Pack{ref["digest"]: parsed}, map[string]json.RawMessage{"pack_sources": sources})
		return b
	}
	out["pack"] = withSource(pack)
	out["forged-pack"] = withSource(bytes.Replace(pack, []byte("Ping"), []byte("Pong"), 1))
	return out
})
