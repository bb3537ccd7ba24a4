package daemon

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"net/http"

	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/web"
	"github.com/witan-adp/witan/witness/cosign"
)

// cosigned appends what the witnesses of our log have signed to a checkpoint of it.
func (d *daemon) cosigned(checkpoint []byte) []byte { return d.collector.Cosigned(checkpoint) }

// grown lets the witnesses of our log be asked.
func (d *daemon) grown() { d.collector.Grown() }

// buildCosign makes both sides of C2SP tlog-witness, after the witness role.
func (d *daemon) buildCosign() (err error) {
	var asked []cosign.Asked
	for _, w := range d.cfg.Log.Witnesses {
		key, err := cosignature.ParseVerifier(w.VerifierKey)
		if err != nil {
			return fmt.Errorf("log.witness %s: %w", w.URL, err)
		}
		asked = append(asked, cosign.Asked{URL: w.URL, Key: key})
	}
	d.collector, err = cosign.NewCollector(cosign.CollectorOptions{Witnesses: asked, Checkpoint: d.witness.Checkpoint, Prove: d.witness.ProveGrowth,
		Store: d.st, Do: d.askWitness, Ahead: d.witness.Shown, Agreed: d.witness.Agreed, Doubts: d.witness.Doubted, Now: d.edges.Now, Log: d.log, Registerer: d.metrics})
	if err != nil || !d.cfg.Witness.Enabled || !d.signs {
		return err
	}
	var logs []cosign.Log
	for _, l := range d.cfg.Witness.Logs {
		key, err := cosignature.ParseVerifier(l.VerifierKey)
		if err != nil {
			return fmt.Errorf("witness.log %s: %w", l.Origin, err)
		}
		logs = append(logs, cosign.Log{Origin: l.Origin, Key: key})
	}
	d.cosigner, err = cosign.New(cosign.Options{Name: cosign.Name(d.origin), Key: func() ed25519.PrivateKey { return d.key(keys.Cosigner) }, Store: d.st,
		Logs: logs, Bound: d.witness.KeysOf, MaySign: d.witness.MaySign, Contradicted: d.witness.Conflicting,
		Seen: d.witness.Shown, Now: d.edges.Now, Log: d.log, Registerer: d.metrics})
	return err
}

func (d *daemon) askWitness(ctx context.Context, r fetch.Request) (*fetch.Response, error) {
	return d.fetch.Do(ctx, r)
}

// Keys are the public keys of a daemon, as others are configured with them.
type Keys struct {
	AgentID  string `json:"agent_id"`
	Log      string `json:"log"`      // verifier key of our log
	Cosigner string `json:"cosigner"` // verifier key of our witness
}

func (d *daemon) keys() (k Keys, err error) {
	k.AgentID = d.ring.AgentID()
	status, err := d.witness.Log()
	if err != nil {
		return k, err
	}
	k.Log = status.VerifierKey
	k.Cosigner, err = cosign.VerifierKey(d.origin, d.ring.Public(keys.Cosigner))
	return k, err
}

func (d *daemon) serveKeys(w http.ResponseWriter, _ *http.Request) error {
	k, err := d.keys()
	if err == nil {
		web.WriteJSON(w, http.StatusOK, k)
	}
	return err
}
