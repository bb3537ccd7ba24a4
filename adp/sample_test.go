package adp

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// seedKey is the key whose seed is 32 times the same byte, as in the golden
// vectors (seed 7).
func seedKey(b byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, 32))
}

const sampleRoom = "d8ftedhpqhsusbg001tg"

// mustScan scans text that the test knows to be good.
func mustScan(t testing.TB, text string) Value {
	t.Helper()
	v, err := ScanDepth([]byte(text), RecordDepth)
	if err != nil {
		t.Fatalf("scan %.200s: %v", text, err)
	}
	return v
}

func mustSign(t testing.TB, key ed25519.PrivateKey, d Draft) *Envelope {
	t.Helper()
	e, err := Sign(key, d)
	if err != nil {
		t.Fatalf("sign: %v", err)
	}
	return e
}

// message is a draft behind (seq, hash) of the sample room.
func message(nonce, seq int64, hash, content string) Draft {
	return Draft{Protocol: Protocol, Type: "message.create", CreatedAt: 1779753700000 + nonce, Nonce: nonce,
		RoomID: sampleRoom, BaseSeq: seq, BaseHash: hash, Mentions: []AgentID{},
		Payload: map[string]any{"content_type": "text/plain", "content": content, "references": []string{}}}
}

func creation(nonce int64) Draft {
	return Draft{Protocol: Protocol, Type: "room.create", CreatedAt: 1779753700000, Nonce: nonce,
		Payload: map[string]any{"topic": "Proofs", "visibility": "public", "start_time": 1779753700000, "end_time": 1779760900000}}
}

// chain makes the first n records of a room, by three agents in turn.
func chain(t testing.TB, n int) []*Record {
	t.Helper()
	records := make([]*Record, 0, n)
	pre := ""
	for i := int64(1); i <= int64(n); i++ {
		d := creation(1)
		if i > 1 {
			d = message(i, i-1, pre, strings.Repeat("Each claim rests on a record. ", int(i%5)))
		}
		r := NewRecord(mustSign(t, seedKey(byte(7+i%3)), d), sampleRoom, i, pre, 1779753700000+i*1000)
		records, pre = append(records, r), r.Hash
	}
	return records
}

// benchRecord is a canonical record of about 1 KB, the second of a room.
func benchRecord(t testing.TB) (text []byte, pre string) {
	t.Helper()
	first := chain(t, 1)[0]
	d := message(2, 1, first.Hash, strings.Repeat("I support this proposal, with one change. ", 8))
	d.Mentions = []AgentID{NewAgentID(seedKey(1).Public().(ed25519.PublicKey))}
	r := NewRecord(mustSign(t, seedKey(7), d), sampleRoom, 2, first.Hash, 1779753701123)
	return r.JSON(), first.Hash
}

// shuffled writes a value again with the members of every object in another
// order.
func shuffled(t testing.TB, v Value, rnd *rand.Rand) []byte {
	t.Helper()
	return shuffleValue(v, rnd, func(err error) { t.Fatal(err) })
}

func shuffleValue(v Value, rnd *rand.Rand, fatal func(error)) []byte {
	var out bytes.Buffer
	var write func(v Value)
	write = func(v Value) {
		switch v.Kind() {
		case Object:
			type member struct {
				name  string
				value Value
			}
			var members []member
			for name, m := range v.Members() {
				members = append(members, member{name, m})
			}
			sorted := slices.Clone(members)
			for len(members) > 1 && slices.Equal(members, sorted) {
				rnd.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			}
			out.WriteByte('{')
			for i, m := range members {
				if i > 0 {
					out.WriteByte(',')
				}
				name, err := json.Marshal(m.name)
				if err != nil {
					fatal(err)
				}
				out.Write(name)
				out.WriteByte(':')
				write(m.value)
			}
			out.WriteByte('}')
		case Array:
			out.WriteByte('[')
			first := true
			for e := range v.Elements() {
				if !first {
					out.WriteByte(',')
				}
				first = false
				write(e)
			}
			out.WriteByte(']')
		default:
			out.Write(v.Raw())
		}
	}
	write(v)
	return out.Bytes()
}
