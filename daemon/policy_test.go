package daemon

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/witan-adp/witan/config"
)

// What the index says of a room follows the policy of the settings, also when that changes.
func TestPolicyInTheIndex(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}, peers: a.info.Peers[:1]})
	creator := newAgent(t)
	id := a.create(creator, nil)
	a.act(creator, id, "room.close", map[string]any{})
	query := "?origin=" + url.QueryEscape(a.origin) + "&room_id=" + id
	until(t, "the attestation", func() bool {
		var at []json.RawMessage
		b.call("GET", "/v1/witness/attestations"+query, nil, &at)
		return len(at) == 1
	})
	other := newAgent(t)
	for _, c := range []struct {
		threshold int
		host      bool // the operator of the mirror runs the host as well
		want      string
	}{{2, false, "partial"}, {1, false, "attested"}, {1, true, "unattested"}, {0, false, "attested"}} {
		port := b.port()
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		b = start(t, setup{data: b.data, port: port, mirrors: []string{a.origin}, peers: a.info.Peers[:1], change: func(cfg *config.Config) {
			cfg.Witness.Policy.Threshold = c.threshold
			cfg.Witness.Trust = []config.Trust{{Agent: b.info.AgentID, Group: "b"}, {Agent: string(other.id), Group: "other"}}
			if c.host {
				cfg.Witness.Trust = append(cfg.Witness.Trust, config.Trust{Agent: a.info.AgentID, Group: "b"})
			}
			if err := cfg.Validate(); err != nil {
				t.Error(err)
			}
		}})
		var got any
		until(t, "the room to be "+c.want, func() bool {
			var found []map[string]any
			b.call("GET", "/v1/index/rooms?host="+url.QueryEscape(a.origin), nil, &found)
			if len(found) == 1 {
				got = found[0]["attested"]
			}
			return got == c.want
		})
	}
}
