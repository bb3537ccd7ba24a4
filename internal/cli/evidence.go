package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/witness"
)

// maxEvidenceFile bounds what verify-evidence reads: a list with some hundred
// proofs.
const maxEvidenceFile = 32 << 20

// witnessCommand is for what witnesses say, without a daemon.
func witnessCommand() *cobra.Command {
	c := &cobra.Command{Use: "witness", Short: "Check what witnesses keep"}
	c.AddCommand(verifyEvidenceCommand())
	return c
}

func verifyEvidenceCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{Use: "verify-evidence FILE", Short: "Check the proof that a key signed two things that cannot both hold", Args: cobra.ExactArgs(1),
		Long: `Check the proof that one key signed two things that cannot both hold: two statements or heads of one room, two checkpoints of one log, or
two attestations or cosignatures. Everything that is needed is in the file, and there is no network. FILE is a proof, or a list of
them, as GET /v1/witness/evidence gives it; - is standard input.

What a proof says is that this key did it. Whose key it is stands in the did.json of the host, which is not a part of the proof.
An observation, which is what one daemon saw without signatures, proves nothing.

The exit status is 0 only when all that the file holds is proven.`,
		RunE: c.do(func(_ context.Context, args []string) error {
			text, err := c.evidence(args[0])
			if err != nil {
				return err
			}
			v, err := adp.ScanDepth(text, adp.MaxDepth+1)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			var reports []evidenceReport
			if v.Kind() != adp.Array {
				reports = append(reports, checkEvidence(v))
			} else {
				for item := range v.Elements() {
					reports = append(reports, checkEvidence(item))
				}
				if len(reports) == 0 {
					return fmt.Errorf("%s: the list is empty: nothing is proven", args[0])
				}
			}
			return c.reportEvidence(reports, v.Kind() == adp.Array)
		})}
	c.output(cmd)
	return cmd
}

func (c *client) evidence(name string) ([]byte, error) {
	r := c.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		r = file
	}
	text, err := io.ReadAll(io.LimitReader(r, maxEvidenceFile+1))
	if err == nil && len(text) > maxEvidenceFile {
		err = fmt.Errorf("%s: more than %d MiB; split the list", name, maxEvidenceFile>>20)
	}
	return text, err
}

// evidenceReport is what verify-evidence says of a piece of evidence, in JSON.
type evidenceReport struct {
	Proven  bool     `json:"proven"`
	Reason  string   `json:"reason,omitempty"` // why it is not
	Kind    string   `json:"kind,omitempty"`
	Against string   `json:"against,omitempty"` // host, or witness
	Origin  string   `json:"origin,omitempty"`
	RoomID  string   `json:"room_id,omitempty"` // empty: the log of the origin
	Genesis string   `json:"genesis,omitempty"`
	Key     string   `json:"key,omitempty"`
	Sides   []string `json:"sides,omitempty"`
}

func checkEvidence(v adp.Value) evidenceReport {
	p, err := func() (*witness.Proof, error) {
		if v.Get("class").Text() == witness.ClassObservation {
			return nil, errors.New("an observation: what one daemon saw, and nobody signed, proves nothing")
		}
		text, err := witness.ProofText(v)
		if err != nil {
			return nil, err
		}
		return witness.VerifyEvidence(text)
	}()
	if err != nil {
		return evidenceReport{Reason: err.Error(), Kind: v.Get("kind").Text(), Origin: v.Get("origin").Text(), RoomID: v.Get("room_id").Text()}
	}
	return evidenceReport{Proven: true, Kind: p.Kind, Against: p.Against(), Origin: p.Origin, RoomID: p.RoomID, Genesis: p.Genesis, Key: string(p.Agent),
		Sides: []string{p.Sides[0].Says(), p.Sides[1].Says()}}
}

func (c *client) reportEvidence(reports []evidenceReport, list bool) error {
	all := true
	for _, r := range reports {
		all = all && r.Proven
	}
	var err error
	switch {
	case c.json && list:
		err = asJSON(c.out, reports)
	case c.json:
		err = asJSON(c.out, reports[0])
	default:
		for i, r := range reports {
			if i > 0 {
				fmt.Fprintln(c.out)
			}
			if err = r.show(c.out); err != nil {
				break
			}
		}
	}
	if err == nil && !all {
		err = errReported
	}
	return err
}

func (r evidenceReport) show(w io.Writer) error {
	if !r.Proven {
		fmt.Fprintf(w, "not proven: %s\n", short(r.Reason, 500))
		return fields(w, "kind", short(r.Kind, 64), "origin", short(r.Origin, 300), "room", short(r.RoomID, 128))
	}
	said := "the host signed two things that cannot both hold"
	if r.Against == "witness" {
		said = "a witness vouched for two things that cannot both hold"
	}
	fmt.Fprintf(w, "proven: %s\n", said)
	return fields(w, "kind", r.Kind, "origin", plain(r.Origin), "room", plain(r.RoomID), "genesis", r.Genesis, "key", r.Key, "one", plain(r.Sides[0]), "other", plain(r.Sides[1]))
}
