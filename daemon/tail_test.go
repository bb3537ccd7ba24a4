package daemon

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/witness"
)

// A mirror without a single peer reads the log of the host: so it knows what the host
// has signed, attests with it, and can prove it when the host is gone.
func TestMirrorReadsTheLog(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}, change: func(c *config.Config) { c.P2P.Enabled, c.Mirror.PollMax = false, config.Duration(time.Second) }})
	creator := newAgent(t)
	id := a.create(creator, nil)
	a.act(creator, id, "room.close", map[string]any{"reason": "done"})
	query := "?origin=" + url.QueryEscape(a.origin) + "&room_id=" + id
	var said []struct{ Hash string }
	var attested []json.RawMessage
	until(t, "the statement and the attestation", func() bool {
		b.call("GET", "/v1/witness/statements"+query, nil, &said)
		b.call("GET", "/v1/witness/attestations"+query, nil, &attested)
		return len(said) == 1 && len(attested) == 1
	})
	if !strings.Contains(string(attested[0]), `"statement":"`+said[0].Hash+`"`) {
		t.Errorf("attested without the statement: %s", attested[0])
	}
	var hosts []struct {
		Origin string
		Log    witness.TailStatus
	}
	b.call("GET", "/federation/v1/hosts", nil, &hosts)
	if want := (witness.TailStatus{Log: authority(a.origin) + "/witan", Size: 1, Read: 1}); len(hosts) != 1 || hosts[0].Log != want {
		t.Errorf("%+v", hosts)
	}
	a.stop()
	var p struct {
		Size       uint64
		Checkpoint string
	}
	if status, _, raw := b.call("GET", "/v1/witness/log-entry?hash="+said[0].Hash, nil, &p); status != 200 || p.Size != 1 || !strings.HasPrefix(p.Checkpoint, authority(a.origin)+"/witan\n1\n") {
		t.Errorf("%d %s", status, raw)
	}
}
