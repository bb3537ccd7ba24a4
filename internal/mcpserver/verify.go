package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/internal/inspect"
	"github.com/witan-adp/witan/internal/remote"
)

func (t *tools) addVerify(s *mcp.Server) {
	add(t, s, &mcp.Tool{Name: "verify_room", Annotations: reads("Verify a room or its archive in full"), InputSchema: t.room(nil),
		Description: "Verify every record of a room, and its archive once it has ended, where this server runs: strict JSON, hashes, signatures, links, whether each event was allowed, manifest, Merkle root and exact bytes. The verdict is verified, violations, unverifiable, withheld, archive-mismatch or broken."}, t.verifyRoom)
}

type verifyIn struct {
	Room string `json:"room"`
	From string `json:"from"`
}

type verifyFacts struct {
	Verdict     string           `json:"verdict"`
	Meaning     string           `json:"meaning"`
	Source      string           `json:"source"`
	VerifiedBy  string           `json:"verified_by"`
	RoomID      string           `json:"room_id,omitempty"`
	Records     int64            `json:"records"`
	Authors     int              `json:"authors"`
	BrokenAt    int64            `json:"broken_at_seq,omitempty" jsonschema:"the first record that is not authentic or not linked"`
	Manifest    string           `json:"manifest" jsonschema:"none, matches, differs, unchecked or partly"`
	Counts      map[string]int64 `json:"counts"`
	Rules       map[string]int   `json:"rules,omitempty" jsonschema:"violations by rule"`
	Withheld    int64            `json:"withheld,omitempty"`
	Genesis     string           `json:"genesis,omitempty"`
	LastHash    string           `json:"last_hash,omitempty"`
	ArchiveRoot string           `json:"archive_root,omitempty"`
	EventsCID   string           `json:"events_cid,omitempty"`
	BundleCID   string           `json:"bundle_cid,omitempty"`
}

type verifyText struct {
	Topic    string   `json:"topic,omitempty"`
	Reason   string   `json:"reason,omitempty" jsonschema:"why it is broken"`
	Problems []string `json:"problems,omitempty" jsonschema:"what does not fit the records"`
	Findings []string `json:"findings,omitempty" jsonschema:"events that were not allowed or cannot be judged"`
}

var meanings = map[string]string{
	"verified":         "every record is authentic, linked and was allowed, and all that is said about them fits",
	"violations":       "authentic and linked, but the host accepted what the protocol forbids",
	"unverifiable":     "authentic and linked, but some events cannot be judged",
	"withheld":         "authentic and linked, but the host keeps back what some records say",
	"archive-mismatch": "the records are not what the manifest, the archive or the room resource says; do not rely on it",
	"broken":           "from broken_at_seq on it is not authentic or not linked; do not rely on it",
}

// inspect verifies a whole room.
func (t *tools) inspect(ctx context.Context, c *remote.Client, p remote.Room) (*inspect.Inspection, error) {
	if most := t.o.MaxRecords; most > 0 {
		r, err := c.Resource(ctx, p)
		if err != nil {
			return nil, err
		}
		if r.Last.Seq > most {
			return nil, remote.Argumentf("the room has %d records, and this server verifies at most %d for others; verify it where you are: witan verify %s, or witan mcp over standard input and output", r.Last.Seq, most, p.URL())
		}
	}
	leave, err := take(ctx, t.proofs)
	if err != nil {
		return nil, err
	}
	defer leave()
	in := inspect.New(p.URL())
	return in, in.Room(ctx, remote.Place{C: c, P: p}, p.ID)
}

func (t *tools) verifyRoom(ctx context.Context, q verifyIn) (f verifyFacts, u verifyText, err error) {
	c, p, err := t.place(q.Room, q.From == fromHost)
	if err != nil {
		return f, u, err
	}
	in, err := t.inspect(ctx, c, p)
	if err != nil {
		return f, u, err
	}
	r := in.Report()
	by := "this process, from what " + p.Base + " served"
	if t.o.Far == nil {
		by = "the daemon at " + t.o.Daemon + " itself; to rely on nobody, verify where you are: witan verify " + p.URL()
	}
	f = verifyFacts{Verdict: r.Verdict, Meaning: meanings[r.Verdict], Source: p.URL(), VerifiedBy: by, RoomID: roomID(r.RoomID), Records: r.Records, Authors: r.Authors, Manifest: r.Manifest,
		Counts: map[string]int64{}, Withheld: r.Withheld, Genesis: r.Genesis, LastHash: r.LastHash, ArchiveRoot: r.ArchiveRoot, EventsCID: r.EventsCID, BundleCID: r.BundleCID}
	for outcome, n := range r.Counts {
		f.Counts[string(outcome)] = n
	}
	if len(r.Rules) > 0 {
		f.Rules = map[string]int{}
		for rule, n := range r.Rules {
			f.Rules[word(string(rule))] = n
		}
	}
	u.Topic = line(r.Topic, 1000)
	if r.Broken != nil {
		f.BrokenAt, u.Reason = r.Broken.Seq, line(r.Broken.Reason, 500)
	}
	for _, s := range r.Problems[:min(len(r.Problems), mostProblems)] {
		u.Problems = append(u.Problems, line(s, 500))
	}
	for _, found := range r.Findings {
		u.Findings = append(u.Findings, line(fmt.Sprintf("seq %d: %s %s: %s", found.Seq, found.Outcome, found.Rule, found.Reason), 300))
	}
	return f, u, nil
}
