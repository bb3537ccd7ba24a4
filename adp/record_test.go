package adp

import (
	"crypto/ed25519"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

type recordsFile struct {
	Records     []json.RawMessage
	Events      string `json:"events_sha3_256"`
	Root        string `json:"archive_root"`
	EventsCID   string `json:"events_cid"`
	Alterations []struct {
		Name, Stage string
		Code        Code
		Record      json.RawMessage
	}
}

func TestRecordsKnownAnswers(t *testing.T) {
	var g recordsFile
	golden(t, "records.json", &g)
	var d Digest
	room, seq, pre := sampleRoom, int64(0), ""
	for _, text := range g.Records {
		r, err := ParseRecord(mustScan(t, string(text)))
		if err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{"signature": r.CheckSignature(), "shape": r.Envelope.CheckShape(), "link": r.Follows(room, seq, pre)} {
			if err != nil {
				t.Errorf("seq %d, %s: %v", r.Seq, name, err)
			}
		}
		if made := NewRecord(r.Envelope, r.RoomID, r.Seq, r.PreHash, r.ReceivedAt); made.Hash != r.Hash || string(made.JSON()) != string(r.JSON()) {
			t.Errorf("NewRecord makes %s", made.JSON())
		}
		seq, pre = r.Seq, r.Hash
		d.Add(r)
	}
	s := d.Summary()
	if Encode(s.Events[:]) != g.Events || Encode(s.Root[:]) != g.Root || s.EventsCID() != g.EventsCID || s.Count != 3 || s.LastHash != pre {
		t.Errorf("%+v", s)
	}
	if len(g.Alterations) < 30 {
		t.Fatal("the file is not whole")
	}
	for _, a := range g.Alterations {
		r, err := ParseRecord(mustScan(t, string(a.Record)))
		stage := "parse"
		if err == nil {
			stage, err = "signature", r.CheckSignature()
		}
		if err == nil {
			stage, err = "shape", r.Envelope.CheckShape()
		}
		if stage != a.Stage || CodeOf(err) != a.Code {
			t.Errorf("%s: %s says %v, want %s to say %s", a.Name, stage, err, a.Stage, a.Code)
		}
	}
}

func TestRecordMembersOrder(t *testing.T) {
	for _, r := range chain(t, 3) {
		rnd := rand.New(rand.NewPCG(uint64(r.Seq), 1))
		for range 10 {
			v := mustScan(t, string(shuffled(t, mustScan(t, string(r.JSON())), rnd)))
			again, err := ParseRecord(v)
			if err != nil || string(again.JSON()) != string(r.JSON()) {
				t.Fatalf("%s: %v", v.Raw(), err)
			}
		}
	}
}

func TestParseRecordRefusesOtherValues(t *testing.T) {
	for _, text := range []string{"null", "[]", "1", `""`, "{}", `{"envelope":1,"hash":2,"pre_hash":3,"received_at":4,"room_id":5,"seq":6}`} {
		if _, err := ParseRecord(mustScan(t, text)); CodeOf(err) != InvalidEvent {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := ParseRecord(Value{}); CodeOf(err) != InvalidEvent {
		t.Error(err)
	}
}

func TestFollows(t *testing.T) {
	c := chain(t, 4)
	other := NewRecord(c[0].Envelope, "other", 1, "", 5)
	for name, l := range map[string]struct {
		r    *Record
		room string
		seq  int64
		hash string
		ok   bool
	}{
		"first":                      {c[0], sampleRoom, 0, "", true},
		"second":                     {c[1], sampleRoom, 1, c[0].Hash, true},
		"fourth":                     {c[3], sampleRoom, 3, c[2].Hash, true},
		"second behind nothing":      {c[1], sampleRoom, 0, "", false},
		"first behind first":         {c[0], sampleRoom, 1, c[0].Hash, false},
		"gap":                        {c[2], sampleRoom, 1, c[0].Hash, false},
		"again":                      {c[1], sampleRoom, 2, c[1].Hash, false},
		"right seq, other hash":      {c[2], sampleRoom, 2, c[0].Hash, false},
		"right hash, other seq":      {c[2], sampleRoom, 3, c[1].Hash, false},
		"first behind a hash at 0":   {c[0], sampleRoom, 0, c[0].Hash, false},
		"second without hash":        {c[1], sampleRoom, 1, "", false},
		"other room":                 {other, sampleRoom, 0, "", false},
		"other room, its own answer": {other, "other", 0, "", true},
	} {
		if err := l.r.Follows(l.room, l.seq, l.hash); (err == nil) != l.ok || err != nil && CodeOf(err) != InvalidEvent {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIsRoomID(t *testing.T) {
	for id, want := range map[string]bool{
		sampleRoom: true, "a": true, "A.b-c_d~9": true, "...": true, "Public": true, strings.Repeat("x", 128): true,
		"": false, "public": false, ".": false, "..": false, "a/b": false, "a b": false, "a%b": false, "é": false, "a\n": false, `"`: false, "a?": false, "#": false, "\x00": false, strings.Repeat("x", 129): false,
	} {
		if IsRoomID(id) != want {
			t.Errorf("%q: %v", id, !want)
		}
	}
}

func TestLeafData(t *testing.T) {
	r := chain(t, 1)[0]
	leaf := r.LeafData()
	if Encode(leaf[:]) != r.Hash {
		t.Error("the leaf is not the raw hash")
	}
	defer func() {
		if recover() == nil {
			t.Error("a record without a hash has a leaf")
		}
	}()
	(&Record{}).LeafData()
}

// What an agent signed for another protocol, or for another room, is no record
// of this one: else a host could make it say there what it never said.
func TestRecordOfSomethingElse(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	for name, d := range map[string]Draft{
		"another protocol": {Protocol: WitnessProtocol, Type: "room.create", CreatedAt: 1, Nonce: 1, Payload: map[string]any{}},
		"another room":     {Protocol: Protocol, Type: "message.create", CreatedAt: 1, Nonce: 1, Payload: map[string]any{}, RoomID: "other", BaseSeq: 1, BaseHash: strings.Repeat("A", 43)},
	} {
		e, err := Sign(key, d)
		if err != nil {
			t.Fatal(err)
		}
		r := NewRecord(e, sampleRoom, 1, "", 5)
		v, err := ScanDepth(r.JSON(), RecordDepth)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseRecord(v); CodeOf(err) != InvalidEvent {
			t.Errorf("%s: %v", name, err)
		}
	}
}
