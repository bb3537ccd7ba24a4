package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/p2p"
	"github.com/witan-adp/witan/witness"
)

// A host that signed a second archive of a room: whoever mirrors it and hears of
// both shows the room as equivocated, with the proof, also after a restart.
func TestEquivocatedRoom(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}, peers: a.info.Peers[:1]})
	creator := newAgent(t)
	id := a.create(creator, nil)
	a.act(creator, id, "room.close", map[string]any{"reason": "done"})
	query := "?origin=" + url.QueryEscape(a.origin) + "&room_id=" + id
	var said []json.RawMessage
	until(t, "the attestation of the mirror", func() bool {
		var at []json.RawMessage
		b.call("GET", "/v1/witness/statements"+query, nil, &said)
		b.call("GET", "/v1/witness/attestations"+query, nil, &at)
		return len(said) == 1 && len(at) == 1
	})
	v, err := adp.Scan(said[0])
	if err != nil {
		t.Fatal(err)
	}
	first, err := adp.ParseEnvelope(v)
	if err != nil {
		t.Fatal(err)
	}
	var payload map[string]any
	if err := json.Unmarshal(first.Payload.Raw(), &payload); err != nil {
		t.Fatal(err)
	}
	payload["archive_root"] = adp.Encode(make([]byte, 32))
	ring, _, err := keys.Load(filepath.Join(a.data, "key"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := adp.Sign(ring.Key(keys.Agent), adp.Draft{Protocol: adp.WitnessProtocol, Type: witness.TypeAnnounce, CreatedAt: first.CreatedAt, Nonce: first.Nonce + 1, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	// a peer of the mirror was told the other story
	b.peer(t, func(c *p2p.Node) {
		c.HandleStream(witness.ProtocolSync, witness.MaxSyncRequest, witness.MaxSyncResponse, func(context.Context, string, []byte) ([]byte, error) {
			return fmt.Appendf(nil, `{"items":[%s],"next":""}`, second.JSON()), nil
		})
	})
	shown := func(d *running) bool {
		var found []map[string]any
		d.call("GET", "/v1/index/rooms?q=quorum&host="+url.QueryEscape(a.origin), nil, &found)
		_, header, _ := d.call("GET", "/m/"+authority(a.origin)+"/v1/rooms/"+id+"/events", nil, nil)
		var evidence []json.RawMessage
		d.call("GET", "/v1/witness/evidence"+query, nil, &evidence)
		return len(found) == 1 && found[0]["verdict"] == "equivocated" && found[0]["attested"] == "equivocated" && header.Get("Witan-Verdict") == "equivocated" &&
			len(evidence) == 1 && strings.Contains(string(evidence[0]), witness.KindStatements)
	}
	until(t, "the room to show as equivocated", func() bool { return shown(b) })
	// the host is told as well, and shows it of its own room
	until(t, "the proof at the host", func() bool {
		var evidence []json.RawMessage
		a.call("GET", "/v1/witness/evidence"+query, nil, &evidence)
		return len(evidence) == 1
	})
	port := b.port()
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b = start(t, setup{data: b.data, port: port})
	until(t, "the room to show as equivocated after a restart", func() bool { return shown(b) })
}
