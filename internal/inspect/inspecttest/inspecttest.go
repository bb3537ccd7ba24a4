// Package inspecttest makes rooms and archives for tests of what verifies them: good ones, and one for each way to be bad. It serves tests
// alone, and accepts what no host should.
package inspecttest

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

// The room that is built, and its host.
const (
	RoomID = "d8ftedhpqhsusbg001tg"
	URL    = "https://host.example/v1/rooms/" + RoomID
	Start  = int64(1779753600000)
	End    = Start + 3600_000
)

// Key is the key of the agent number b, always the same.
func Key(b byte) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, 32)) }

// Builder makes the records of one room as a host that accepts everything would.
type Builder struct {
	Records []*adp.Record
	nonce   int64
}

// Add appends one event, on the head of the room, a second after the last.
func (b *Builder) Add(key ed25519.PrivateKey, typ string, payload any) {
	b.nonce++
	at := Start + 1000*b.nonce
	d := adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: at, Nonce: b.nonce, Payload: payload}
	pre := ""
	if n := len(b.Records); n > 0 {
		last := b.Records[n-1]
		pre, d.RoomID, d.BaseSeq, d.BaseHash = last.Hash, RoomID, last.Seq, last.Hash
		for _, r := range b.Records { // the head
			if t := r.Envelope.Type; t != room.Join && t != "ping.send" {
				d.BaseSeq, d.BaseHash = r.Seq, r.Hash
			}
		}
	}
	e, err := adp.Sign(key, d)
	if err != nil {
		panic(err)
	}
	b.Records = append(b.Records, adp.NewRecord(e, RoomID, b.nonce, pre, at))
}

// Create opens a public room.
func (b *Builder) Create(types ...any) {
	payload := map[string]any{"topic": "Proofs", "visibility": "public", "start_time": Start, "end_time": End}
	if types != nil {
		payload["types"] = types
	}
	b.Add(Key(1), room.Create, payload)
}

// Say appends a message.
func (b *Builder) Say(key ed25519.PrivateKey, text string) {
	b.Add(key, room.Message, map[string]any{"content_type": "text/plain", "content": text})
}

// Seal makes the archive of what was built.
func (b *Builder) Seal(packs map[string]*types.Pack, extra map[string]json.RawMessage) (manifest, bundle []byte) {
	v := room.NewVerifier(RoomID, packs)
	for _, r := range b.Records {
		if err := v.Add(r); err != nil {
			panic(err)
		}
	}
	return SealManifest(adp.Manifest{Host: "host.example", URL: URL, GeneratedAt: End, Summary: v.Digest.Summary(),
		Room: v.State.Resource(URL, End), Extra: extra}, b.Records)
}

// SealManifest is the manifest of an archive, and its archive.jsonl.
func SealManifest(m adp.Manifest, records []*adp.Record) (manifest, bundle []byte) {
	line1, err := m.Line1()
	if err != nil {
		panic(err)
	}
	b := adp.NewBundle(line1)
	bundle = append(line1[:len(line1):len(line1)], '\n')
	for _, r := range records {
		b.Add(r.JSON())
		bundle = append(append(bundle, r.JSON()...), '\n')
	}
	if manifest, err = m.JSON(b); err != nil {
		panic(err)
	}
	return manifest, bundle
}

// Archives are archives, good and bad, by name.
var Archives = sync.OnceValue(func() map[string][]byte {
	good := &Builder{}
	good.Create()
	good.Add(Key(2), room.Join, map[string]any{"role": "speaker"})
	for i := range 10 {
		good.Say(Key(byte(1+i%2)), fmt.Sprintf("claim %d", i))
	}
	good.Add(Key(1), room.Close, map[string]any{})
	manifest, bundle := good.Seal(nil, nil)
	lines := bytes.SplitAfter(bundle, []byte("\n"))
	lines = lines[:len(lines)-1]
	join := func(lines ...[]byte) []byte { return bytes.Join(lines, nil) }

	out := map[string][]byte{"good": bundle, "manifest": manifest, "records": join(lines[1:]...)}
	out["array"] = []byte("[\n" + strings.ReplaceAll(strings.TrimSpace(string(join(lines[1:]...))), "\n", " ,\n") + "]\n")
	out["tampered"] = bytes.Replace(bundle, []byte("claim 4"), []byte("claim 5"), 1)
	red, err := good.Records[6].Redact()
	if err != nil {
		panic(err)
	}
	out["withheld"] = join(append(append(append([][]byte(nil), lines[:7]...), red.JSON(), []byte("\n")), lines[8:]...)...)
	out["withheld-forged"] = bytes.Replace(out["withheld"], []byte(red.Envelope.Hash), []byte(good.Records[5].Envelope.Hash), 1)
	red, err = good.Records[1].Redact()
	if err != nil {
		panic(err)
	}
	out["withheld-join"] = join(append(append(append([][]byte(nil), lines[:2]...), red.JSON(), []byte("\n")), lines[3:]...)...)
	out["cut"] = join(lines[:len(lines)-2]...)
	out["cut-in-line"] = bundle[:len(bundle)-40]
	out["reordered"] = join(append(append(append([][]byte(nil), lines[:6]...), lines[7], lines[6]), lines[8:]...)...)
	out["long-line"] = join(lines[0], lines[1], []byte(`{"a":"`+strings.Repeat("x", 4<<20)+"\"}\n"))
	out["long-element"] = []byte("[" + string(lines[1]) + `,"` + strings.Repeat("x", 12<<20) + `"]`)
	out["array-open"] = out["array"][:len(out["array"])-2]
	out["array-more"] = append(append([]byte(nil), out["array"]...), "{}"...)
	out["empty-line"] = join(lines[0], lines[1], []byte("\n"), join(lines[2:]...))
	out["manifest-only"] = lines[0]
	out["respelled"] = bytes.ReplaceAll(bundle, []byte("\n{"), []byte("\n{ "))
	out["bad-manifest"] = bytes.Replace(bundle, []byte(`"first_seq":1`), []byte(`"first_seq":2`), 1)
	out["other-room"] = join(append([][]byte{bytes.Replace(lines[0], []byte(`"topic":"Proofs"`), []byte(`"topic":"Proven"`), 1)}, lines[1:]...)...)
	out["other-size"] = join(append([][]byte{bytes.Replace(lines[0], []byte(`"merkle":{"size":13,`), []byte(`"merkle":{"size":12,`), 1)}, lines[1:]...)...)
	_, other := (&Builder{Records: good.Records[:5]}).Seal(nil, nil)
	out["other-manifest"] = join(append([][]byte{bytes.SplitAfter(other, []byte("\n"))[0]}, lines[1:]...)...)

	bad := &Builder{}
	bad.Create()
	for i := range 25 {
		bad.Say(Key(9), fmt.Sprintf("I never joined \u202e%d", i))
	}
	_, out["violations"] = bad.Seal(nil, nil)

	pack := []byte(`{"protocol":"agent-discourse/1.0", "packs":[{"id":"x:ping/1.0","title":"Ping","types":[{"type":"ping.send","kind":"signal","title":"Ping","schema":{"type":"object"}}]}]}`)
	sum := sha256.Sum256(pack)
	ref := map[string]string{"pack": "https://packs.example/ping.json", "digest": "sha256:" + adp.Encode(sum[:])}
	external := &Builder{}
	external.Create(ref)
	external.Add(Key(1), "ping.send", map[string]any{})
	_, out["no-pack"] = external.Seal(nil, nil)
	parsed, err := types.ParsePack(pack)
	if err != nil {
		panic(err)
	}
	withSource := func(raw []byte) []byte {
		sources, err := json.Marshal([]map[string]string{{"pack": ref["pack"], "digest": ref["digest"], "raw": adp.Encode(raw)}})
		if err != nil {
			panic(err)
		}
		_, b := external.Seal(map[string]*types.Pack{ref["digest"]: parsed}, map[string]json.RawMessage{"pack_sources": sources})
		return b
	}
	out["pack"] = withSource(pack)
	out["forged-pack"] = withSource(bytes.Replace(pack, []byte("Ping"), []byte("Pong"), 1))
	return out
})
