package room

import (
	"fmt"
	"maps"
	"slices"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/types"
)

// Finding is one record that was not plainly allowed.
type Finding struct {
	Seq     int64    `json:"seq"`
	Outcome Outcome  `json:"outcome"`
	Rule    adp.Code `json:"rule,omitempty"`
	Reason  string   `json:"reason"`
}

// Verifier replays the records of one room in order: link, rules, digests. The
// signature of a record is checked before Add, on as many cores as there are; that
// of a redacted one cannot be, and it counts as Withheld.
type Verifier struct {
	State  *State
	Digest adp.Digest
	Counts map[Outcome]int64

	chain MemoryChain
	packs map[string]*types.Pack
	found []Finding
}

// maxFindings bounds what a hostile archive can make us remember.
const maxFindings = 1000

// NewVerifier starts before the first record. packs are the external pack
// documents at hand, by digest.
func NewVerifier(roomID string, packs map[string]*types.Pack) *Verifier {
	return &Verifier{State: New(roomID), Counts: map[Outcome]int64{}, packs: packs}
}

// Add takes the next record, whose signature has been checked. An error means
// that the chain is broken here; the record was not taken.
func (v *Verifier) Add(r *adp.Record) error {
	s := v.State
	if err := r.Follows(s.RoomID, s.Last.Seq, s.Last.Hash); err != nil {
		return fmt.Errorf("seq %d: %w", s.Last.Seq+1, err)
	}
	verdict, change, err := s.Judge(r, Context{Chain: &v.chain, Packs: v.packs})
	if err == nil {
		err = s.Advance(r, change)
	}
	if err != nil {
		return fmt.Errorf("seq %d: %w", r.Seq, err)
	}
	v.chain.Add(r)
	v.Digest.Add(r)
	v.Counts[verdict.Outcome]++
	if verdict.Outcome != Allowed && len(v.found) < maxFindings {
		v.found = append(v.found, Finding{r.Seq, verdict.Outcome, verdict.Rule, verdict.Reason})
	}
	return nil
}

// Findings lists the records that were not plainly allowed, at most the first
// thousand; Counts counts all of them.
func (v *Verifier) Findings() []Finding { return v.found }

// Rules counts the violations among the findings by rule.
func (v *Verifier) Rules() map[adp.Code]int {
	m := map[adp.Code]int{}
	for _, f := range v.found {
		if f.Outcome == Violation {
			m[f.Rule]++
		}
	}
	return m
}

// RuleNames lists the rules that were violated, sorted.
func (v *Verifier) RuleNames() []adp.Code { return slices.Sorted(maps.Keys(v.Rules())) }
