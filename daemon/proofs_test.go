package daemon

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

// What the daemon signs is in its log, and what a room holds can be proven.
func TestLogAndProofs(t *testing.T) {
	d := start(t, setup{})
	creator := newAgent(t)
	id := d.create(creator, nil)
	for i := range 4 {
		d.act(creator, id, "message.create", text(fmt.Sprint(i)))
	}
	var records []struct{ Hash string }
	d.call("GET", "/v1/rooms/"+id+"/events", nil, &records)
	leaves := make([][32]byte, len(records))
	for i, r := range records {
		h, err := adp.DecodeHash(r.Hash)
		if err != nil {
			t.Fatal(err)
		}
		leaves[i] = h
	}
	want := adp.MerkleRoot(leaves)
	for seq := 1; seq <= len(records); seq++ {
		var p struct {
			Size   uint64
			Root   string
			Hashes []string
		}
		if status, _, raw := d.call("GET", fmt.Sprintf("/v1/rooms/%s/proof?seq=%d", id, seq), nil, &p); status != 200 {
			t.Fatalf("seq %d: %d %s", seq, status, raw)
		}
		var hashes [][]byte
		for _, h := range p.Hashes {
			b, err := adp.DecodeHash(h)
			if err != nil {
				t.Fatal(err)
			}
			hashes = append(hashes, b[:])
		}
		if err := adp.VerifyInclusion(leaves[seq-1], uint64(seq-1), p.Size, hashes, want); err != nil || p.Root != adp.Encode(want[:]) {
			t.Errorf("seq %d: %v", seq, err)
		}
	}
	for _, q := range []string{"seq=0", "seq=6", "seq=1&size=9", "from=3&to=2", "seq=x", ""} {
		if status, _, raw := d.call("GET", "/v1/rooms/"+id+"/proof?"+q, nil, nil); status != 400 {
			t.Errorf("%s: %d %s", q, status, raw)
		}
	}
	if status, _, raw := d.call("GET", "/v1/rooms/"+id+"/checkpoint", nil, nil); status != 200 || !strings.HasPrefix(string(raw), authority(d.origin)+"/witan/rooms/"+id) {
		t.Errorf("checkpoint: %d %s", status, raw)
	}
	secret := d.create(newAgent(t), map[string]any{"visibility": "private"})
	for _, path := range []string{"/proof?seq=1", "/checkpoint"} {
		if status, _, raw := d.call("GET", "/v1/rooms/"+secret+path, nil, nil); status != 404 {
			t.Errorf("private %s: %d %s", path, status, raw)
		}
	}

	d.act(creator, id, "room.close", map[string]any{})
	var statements []json.RawMessage
	until(t, "the statement", func() bool {
		d.call("GET", "/v1/witness/statements?origin="+url.QueryEscape(d.origin)+"&room_id="+id, nil, &statements)
		return len(statements) == 1
	})
	v, err := adp.Scan(statements[0])
	if err != nil {
		t.Fatal(err)
	}
	if status, _, raw := d.call("GET", "/v1/witness/log-entry?hash="+v.Get("hash").Text(), nil, nil); status != 200 {
		t.Errorf("log entry: %d %s", status, raw)
	}
	if status, _, raw := d.call("GET", "/log/checkpoint", nil, nil); status != 200 || !strings.HasPrefix(string(raw), authority(d.origin)+"/witan\n1\n") {
		t.Errorf("log checkpoint: %d %s", status, raw)
	}
	payload := v.Get("event").Get("payload")
	for cid, path := range map[string]string{payload.Get("bundle_cid").Text(): "/archive.jsonl", payload.Get("events_cid").Text(): "/events?limit=1000"} {
		_, _, want := d.call("GET", "/v1/rooms/"+id+path, nil, nil)
		if status, _, got := d.call("GET", "/cid/"+cid, nil, nil); status != 200 || string(got) != string(want) {
			t.Errorf("%s: %d, %d bytes, want %d", cid, status, len(got), len(want))
		}
	}
}
