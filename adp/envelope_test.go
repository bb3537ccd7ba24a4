package adp

import (
	"crypto/ed25519"
	"crypto/sha3"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// sealEvent signs any event text, well-formed or not, and gives the envelope's
// text. ACTOR in the text stands for the Agent ID of the key.
func sealEvent(t testing.TB, key ed25519.PrivateKey, event string) string {
	t.Helper()
	event = strings.ReplaceAll(event, "ACTOR", string(NewAgentID(key.Public().(ed25519.PublicKey))))
	c, err := mustScan(t, event).Canonical()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha3.Sum256(c.Raw())
	return fmt.Sprintf(`{"hash":%q,"event":%s,"signature":%q}`, Encode(sum[:]), event, Encode(ed25519.Sign(key, sum[:])))
}

const (
	goodHash = "QmFzZTY0dXJsLXByZXZpb3VzLXJlY29yZC1oYXNoMDA"
	common   = `"actor":"ACTOR","created_at":1779753700000,"nonce":1,"payload":{}`
	anchor   = `"room_id":"d8ftedhpqhsusbg001tg","base_seq":41,"base_hash":"` + goodHash + `"`
	ours     = `"protocol":"agent-discourse/1.0"`
)

// TestEventShape: every event here is authentic; the table says what CheckShape
// thinks of it ("" means that nothing is wrong).
func TestEventShape(t *testing.T) {
	key := seedKey(7)
	me := `"ACTOR"`
	for _, c := range []struct{ event, wrong string }{
		{ours + `,"type":"message.create",` + common + "," + anchor, ""},
		{ours + `,"type":"message.create","mentions":[],` + common + "," + anchor, ""},
		{ours + `,"type":"message.create","mentions":[` + me + `],` + common + "," + anchor, ""},
		{ours + `,"type":"room.create",` + common, ""},
		{ours + `,"type":"room.close",` + common + "," + anchor, ""},
		{ours + `,"type":"x.y",` + strings.Replace(common, "1779753700000", "0", 1) + "," + anchor, ""},
		{ours + `,"type":"x.y",` + strings.Replace(common, `"nonce":1`, `"nonce":9007199254740991`, 1) + "," + anchor, ""},
		{ours + `,"type":"x.y",` + strings.Replace(common, `"nonce":1`, `"nonce":1e3`, 1) + "," + anchor, ""},
		{`"protocol":"agent-witness/1.0","type":"archive.statement",` + common, ""},
		{`"protocol":"agent-profile/1.0","type":"profile.update",` + common, ""},

		// closed members
		{ours + `,"type":"message.create","note":1,` + common + "," + anchor, `"note"`},
		{ours + `,"type":"message.create","Nonce":1,` + common + "," + anchor, `"Nonce"`},
		{ours + `,"type":"message.create","extra":{},` + common + "," + anchor, `"extra"`},
		{ours + `,"type":"message.create","host":"a",` + common + "," + anchor, `"host"`},
		{`"protocol":"agent-witness/1.0","type":"a","note":1,` + common, `"note"`},
		{`"protocol":"agent-witness/1.0","type":"a",` + common + "," + anchor, "only events of"},
		{`"protocol":"agent-witness/1.0","type":"a","mentions":[],` + common, "only events of"},
		{`"protocol":"agent-discourse/1.1","type":"message.create",` + common + "," + anchor, "only events of"},

		// common members
		{`"type":"message.create",` + common + "," + anchor, "event.protocol"},
		{`"protocol":"","type":"message.create",` + common, "event.protocol"},
		{`"protocol":1,"type":"message.create",` + common, "event.protocol"},
		{ours + `,` + common + "," + anchor, "event.type"},
		{ours + `,"type":"",` + common + "," + anchor, "event.type"},
		{ours + `,"type":["message.create"],` + common + "," + anchor, "event.type"},
		{ours + `,"type":"x.y",` + strings.Replace(common, `"created_at":1779753700000,`, "", 1) + "," + anchor, "event.created_at"},
		{ours + `,"type":"x.y",` + strings.Replace(common, "1779753700000", "-1", 1) + "," + anchor, "event.created_at"},
		{ours + `,"type":"x.y",` + strings.Replace(common, "1779753700000", "1.5", 1) + "," + anchor, "event.created_at"},
		{ours + `,"type":"x.y",` + strings.Replace(common, "1779753700000", `"1779753700000"`, 1) + "," + anchor, "event.created_at"},
		{ours + `,"type":"x.y",` + strings.Replace(common, "1779753700000", "null", 1) + "," + anchor, "event.created_at"},
		{ours + `,"type":"x.y",` + strings.Replace(common, `"nonce":1,`, "", 1) + "," + anchor, "event.nonce"},
		{ours + `,"type":"x.y",` + strings.Replace(common, `"nonce":1`, `"nonce":0`, 1) + "," + anchor, "event.nonce"},
		{ours + `,"type":"x.y",` + strings.Replace(common, `"nonce":1`, `"nonce":-5`, 1) + "," + anchor, "event.nonce"},
		{ours + `,"type":"x.y",` + strings.Replace(common, `"nonce":1`, `"nonce":1.5`, 1) + "," + anchor, "event.nonce"},
		{ours + `,"type":"x.y",` + strings.Replace(common, `"nonce":1`, `"nonce":"1"`, 1) + "," + anchor, "event.nonce"},
		{ours + `,"type":"x.y",` + strings.Replace(common, `,"payload":{}`, "", 1) + "," + anchor, "event.payload"},
		{ours + `,"type":"x.y",` + strings.Replace(common, `"payload":{}`, `"payload":[]`, 1) + "," + anchor, "event.payload"},
		{ours + `,"type":"x.y",` + strings.Replace(common, `"payload":{}`, `"payload":null`, 1) + "," + anchor, "event.payload"},

		// anchors
		{ours + `,"type":"room.create",` + common + "," + anchor, "room.create carries no"},
		{ours + `,"type":"room.create","room_id":"x",` + common, "room.create carries no"},
		{ours + `,"type":"room.create","room_id":null,` + common, "room.create carries no"},
		{ours + `,"type":"room.create","base_seq":1,` + common, "room.create carries no"},
		{ours + `,"type":"room.create","base_hash":null,` + common, "room.create carries no"},
		{ours + `,"type":"message.create",` + common, "event.room_id"},
		{ours + `,"type":"room.creation",` + common, "event.room_id"},
		{ours + `,"type":"x.y",` + common + "," + strings.Replace(anchor, `"d8ftedhpqhsusbg001tg"`, "7", 1), "event.room_id"},
		{ours + `,"type":"x.y",` + common + "," + strings.Replace(anchor, "d8ftedhpqhsusbg001tg", "", 1), "event.room_id"},
		{ours + `,"type":"x.y",` + common + "," + strings.Replace(anchor, "41", "0", 1), "event.base_seq"},
		{ours + `,"type":"x.y",` + common + "," + strings.Replace(anchor, "41", "-1", 1), "event.base_seq"},
		{ours + `,"type":"x.y",` + common + "," + strings.Replace(anchor, "41", "1.5", 1), "event.base_seq"},
		{ours + `,"type":"x.y",` + common + "," + strings.Replace(anchor, "41", `"41"`, 1), "event.base_seq"},
		{ours + `,"type":"x.y",` + common + "," + strings.Replace(anchor, `"base_seq":41,`, "", 1), "event.base_seq"},
		{ours + `,"type":"x.y",` + common + "," + strings.Replace(anchor, goodHash, goodHash[1:], 1), "event.base_hash"},
		{ours + `,"type":"x.y",` + common + "," + strings.Replace(anchor, goodHash, goodHash+"=", 1), "event.base_hash"},
		{ours + `,"type":"x.y",` + common + "," + strings.Replace(anchor, `"`+goodHash+`"`, "null", 1), "event.base_hash"},

		// mentions
		{ours + `,"type":"x.y","mentions":{},` + common + "," + anchor, "event.mentions must be an array"},
		{ours + `,"type":"x.y","mentions":null,` + common + "," + anchor, "event.mentions must be an array"},
		{ours + `,"type":"x.y","mentions":` + me + `,` + common + "," + anchor, "event.mentions must be an array"},
		{ours + `,"type":"x.y","mentions":[` + me + `,"x"],` + common + "," + anchor, "no Agent ID"},
		{ours + `,"type":"x.y","mentions":[1],` + common + "," + anchor, "no Agent ID"},
		{ours + `,"type":"x.y","mentions":[[` + me + `]],` + common + "," + anchor, "no Agent ID"},
		{ours + `,"type":"x.y","mentions":["did:agent:` + goodHash[:42] + `1"],` + common + "," + anchor, "no Agent ID"},
	} {
		e, err := ParseEnvelope(mustScan(t, sealEvent(t, key, "{"+c.event+"}")))
		if err != nil {
			t.Errorf("%s: %v", c.event, err)
			continue
		}
		if err := e.CheckHash(); err != nil {
			t.Errorf("%s: %v", c.event, err)
		}
		if err := e.CheckSignature(); err != nil {
			t.Errorf("%s: %v", c.event, err)
		}
		err = e.CheckShape()
		if c.wrong == "" && err != nil || c.wrong != "" && (CodeOf(err) != InvalidEvent || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %q", c.event, err, c.wrong)
		}
	}
}

func TestEnvelopeOuterShape(t *testing.T) {
	good := sealEvent(t, seedKey(7), "{"+ours+`,"type":"room.create",`+common+"}")
	e, err := ParseEnvelope(mustScan(t, good))
	if err != nil {
		t.Fatal(err)
	}
	// an escaped actor in the event text is the same actor
	if e2, err := ParseEnvelope(mustScan(t, strings.Replace(good, `"did:agent:`, `"\u0064id:agent:`, 1))); err != nil || e2.Actor != e.Actor || e2.CheckHash() != nil {
		t.Errorf("%v", err)
	}
	replace := func(old, new string) string {
		t.Helper()
		if !strings.Contains(good, old) {
			t.Fatalf("%s has no %s", good, old)
		}
		return strings.Replace(good, old, new, 1)
	}
	event := string(e.Event().Raw())
	for text, code := range map[string]Code{
		"null": InvalidEvent, "[]": InvalidEvent, `"x"`: InvalidEvent, "{}": InvalidEvent, "1": InvalidEvent,
		`{"hash":"a","event":{},"signature":"b"}`:                                                     InvalidEvent,
		replace(`{"hash"`, `{"extra":{},"hash"`):                                                      InvalidEvent,
		replace(`"hash"`, `"Hash"`):                                                                   InvalidEvent,
		replace(`"signature":"`, `"sig":"`):                                                           InvalidEvent,
		replace(`"signature":"`, `"signature":"A`):                                                    InvalidEvent,
		replace(`"hash":"`, `"hash":"A`):                                                              InvalidEvent,
		fmt.Sprintf(`{"hash":%q,"event":%s}`, e.Hash, event):                                          InvalidEvent,
		fmt.Sprintf(`{"hash":%q,"event":%s,"signature":null}`, e.Hash, event):                         InvalidEvent,
		fmt.Sprintf(`{"hash":null,"event":%s,"signature":%q}`, event, e.Signature):                    InvalidEvent,
		fmt.Sprintf(`{"hash":%q,"event":[%s],"signature":%q}`, e.Hash, event, e.Signature):            InvalidEvent,
		fmt.Sprintf(`{"hash":%q,"event":%q,"signature":%q}`, e.Hash, event, e.Signature):              InvalidEvent,
		fmt.Sprintf(`{"hash":"%s=","event":%s,"signature":%q}`, e.Hash[:42], event, e.Signature):      InvalidEvent,
		fmt.Sprintf(`{"hash":%q,"event":%s,"signature":"%s="}`, e.Hash, event, e.Signature):           InvalidEvent,
		fmt.Sprintf(`{"hash":%q,"event":%s,"signature":"%s"}`, e.Hash, event, e.Signature[:85]+"\\n"): InvalidEvent,
		replace(`"actor":"did:agent:`, `"actor":"did:key:`):                                           InvalidActor,
		replace(`"actor":"did:agent:`, `"actor":"did:agent:A`):                                        InvalidActor,
		replace(`"actor":"`, `"actor":" `):                                                            InvalidActor,
		replace(`"actor":"`, `"actor":1,"x":"`):                                                       InvalidEvent,
		replace(`"actor":"`, `"author":"`):                                                            InvalidEvent,
	} {
		if e, err := ParseEnvelope(mustScan(t, text)); CodeOf(err) != code || e != nil {
			t.Errorf("%s: %v, want %s", text, err, code)
		}
	}
	if _, err := ParseEnvelope(Value{}); CodeOf(err) != InvalidEvent {
		t.Errorf("nothing: %v", err)
	}
}

func TestSignRoundTrip(t *testing.T) {
	key := seedKey(9)
	d := message(5, 4, goodHash, "a <b> & \u2028 😀")
	d.Mentions = []AgentID{NewAgentID(seedKey(1).Public().(ed25519.PublicKey))}
	e := mustSign(t, key, d)
	if e.Protocol != Protocol || e.Type != d.Type || e.CreatedAt != d.CreatedAt || e.Nonce != 5 || e.RoomID != sampleRoom || e.BaseSeq != 4 || e.BaseHash != goodHash || e.Mentions.Len() != 1 || e.Payload.Get("content").Text() != "a <b> & \u2028 😀" {
		t.Errorf("%+v", e)
	}
	for range 20 {
		text := shuffled(t, mustScan(t, string(e.JSON())), rand.New(rand.NewPCG(3, 4)))
		again, err := ParseEnvelope(mustScan(t, string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if string(again.JSON()) != string(e.JSON()) || again.CheckHash() != nil || again.CheckSignature() != nil || again.CheckShape() != nil {
			t.Fatalf("another order of members changed the envelope: %s", text)
		}
	}
	// room.create carries none of the anchors
	if c := mustSign(t, key, creation(1)); c.Event().Len() != 6 || c.CheckShape() != nil {
		t.Errorf("%s", c.JSON())
	}
	for name, payload := range map[string]any{"twice": json.RawMessage(`{"a":1,"a":1}`), "big": map[string]any{"n": 1 << 53}, "unencodable": make(chan int),
		"deep": json.RawMessage(`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + "}")} {
		d.Payload = payload
		if _, err := Sign(key, d); err == nil {
			t.Errorf("%s was signed", name)
		}
	}
}

func TestCheckHashAgainstAChangedField(t *testing.T) {
	e := mustSign(t, seedKey(7), creation(1))
	e.Hash = goodHash
	if CodeOf(e.CheckHash()) != InvalidEventHash || CodeOf(e.CheckSignature()) != InvalidSignature {
		t.Error("the hash is not read from the field")
	}
	for _, c := range []Envelope{{Actor: "x"}, {Actor: e.Actor, Hash: "x"}, {Actor: e.Actor, Hash: e.Hash, Signature: "x"}} {
		if c.CheckSignature() == nil {
			t.Error("a malformed field verifies")
		}
	}
	if (&Envelope{Hash: "x", event: e.event}).CheckHash() == nil {
		t.Error("a malformed hash matches")
	}
}
