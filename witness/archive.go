package witness

import (
	"context"
	"crypto/sha3"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/adp/types"
	"github.com/witan-adp/witan/internal/replica"
)

// errUnsound: the stored records or the stored archive are not what they were when
// they were accepted. Trying again does not help.
var errUnsound = errors.New("witness: not sound")

// errOpen: the replay says that the room has not ended.
var errOpen = errors.New("witness: by its records the room has not ended yet")

// A page of records that are checked side by side.
const (
	pageRecords = 512
	pageBytes   = 4 << 20
)

// recompute reads every record of a replica from the store and checks all there is
// to check: strict parse, both hashes, signature, link, replay. Violations that the
// replay finds are no error: they are what the host published.
func (w *Witness) recompute(ctx context.Context, r *replica.Replica) (*room.Verifier, error) {
	packs := map[string]*types.Pack{}
	v := room.NewVerifier(r.RoomID, packs)
	row := r.Row()
	if row.Dropped > 0 {
		return nil, fmt.Errorf("%w: the records up to seq %d are not kept any more", errUnsound, row.Dropped)
	}
	last := row.Seq
	for v.Digest.Count < last {
		texts, err := storedPage(r, v.Digest.Count, last)
		if err != nil {
			return nil, err
		}
		records, err := authentic(ctx, texts, v.Digest.Count)
		if err != nil {
			return nil, err
		}
		for _, rec := range records {
			have, _ := w.o.Replicas.PacksFor(room.PacksNeeded(rec.Envelope)) // without them: unverifiable
			maps.Copy(packs, have)
			if err := v.Add(rec); err != nil {
				return nil, fmt.Errorf("%w: %w", errUnsound, err)
			}
		}
	}
	if v.Digest.Count == 0 || v.Digest.Genesis != r.Genesis {
		return nil, fmt.Errorf("%w: the records do not begin with the genesis of the room", errUnsound)
	}
	return v, nil
}

var errPage = errors.New("the page is full")

func storedPage(r *replica.Replica, after, last int64) ([][]byte, error) {
	var texts [][]byte
	size := 0
	err := r.ScanHeld(after, last, func(_ int64, raw []byte) error {
		if len(texts) == pageRecords || size > pageBytes {
			return errPage
		}
		size += len(raw)
		texts = append(texts, append([]byte(nil), raw...))
		return nil
	})
	if err != nil && !errors.Is(err, errPage) {
		return nil, err
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("%w: the records end at seq %d of %d", errUnsound, after, last)
	}
	return texts, nil
}

// authentic parses records and verifies their signatures, on all cores. The first
// of the texts is the record behind a seq.
func authentic(ctx context.Context, texts [][]byte, after int64) ([]*adp.Record, error) {
	records, errs := make([]*adp.Record, len(texts)), make([]error, len(texts))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(texts)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(texts) || ctx.Err() != nil {
					return
				}
				v, err := adp.ScanDepth(texts[i], adp.RecordDepth)
				if err == nil {
					records[i], err = adp.ParseServed(v)
				}
				if err == nil && !records[i].Redacted { // summaries count them
					err = records[i].CheckSignature()
				}
				errs[i] = err
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%w: seq %d: %w", errUnsound, after+int64(i)+1, err)
		}
	}
	return records, nil
}

// ended recomputes a room and tells whether something may be signed about it: it
// must be public and over. sum is nil when nothing ever will be.
func (w *Witness) ended(ctx context.Context, r *replica.Replica) (*adp.Summary, error) {
	v, err := w.recompute(ctx, r)
	if err != nil {
		return nil, err
	}
	if v.State.Contract.Visibility != room.Public {
		return nil, nil
	}
	switch v.State.StatusAt(w.o.Now()) {
	case room.Ended:
	case room.Cancelled:
		return nil, nil
	default:
		return nil, errOpen
	}
	sum := v.Digest.Summary()
	return &sum, nil
}

// announce makes the statement about an ended room of our own, once.
func (w *Witness) announce(ctx context.Context, r *replica.Replica) error {
	if !w.o.Sign || w.has(Subject(r.Key), func(a *about) bool { return a.by(TypeAnnounce, w.self) != nil }) {
		return nil
	}
	if err := w.maySign(); err != nil { // before the work
		return err
	}
	raw, ok, err := r.Manifest()
	if err != nil {
		return err
	}
	if !ok {
		return replica.ErrNotEnded
	}
	sum, err := w.ended(ctx, r)
	if err != nil || sum == nil {
		return err
	}
	claim, err := adp.ParseClaim(raw)
	if err == nil {
		err = claim.Check(*sum)
	}
	root := adp.Encode(sum.Root[:])
	if err == nil && claim.ArchiveRoot != root {
		err = errors.New("archive_root is not the Merkle root")
	}
	if err != nil {
		return fmt.Errorf("%w: the archive: %w", errUnsound, err)
	}
	if r.Row().Withheld == 0 { // else the file that is served is another one
		bundle := &bundleSum{h: sha3.New256()}
		if err := r.WriteBundle(bundle); err != nil {
			return err
		}
		if bundle.cid() != claim.BundleCID || bundle.n != claim.BundleBytes {
			return fmt.Errorf("%w: archive.jsonl is not what the manifest says", errUnsound)
		}
	}
	// where an original is erased since, the manifest that we made of it stands
	e, err := w.sign(TypeAnnounce, Statement{Subject: Subject(r.Key), Revision: Revision, EventCount: sum.Count, LastSeq: sum.Count,
		LastHash: sum.LastHash, ArchiveRoot: root, EventsDigest: claim.EventsDigest, EventsCID: claim.EventsCID,
		BundleCID: claim.BundleCID, BundleBytes: claim.BundleBytes, GeneratedAt: claim.GeneratedAt})
	if err != nil {
		return err
	}
	w.log.Info("statement signed", "room", r.RoomID, "records", sum.Count, "hash", e.Hash)
	return nil
}

type bundleSum struct {
	h hash.Hash
	n int64
}

func (b *bundleSum) Write(p []byte) (int, error) {
	b.n += int64(len(p))
	return b.h.Write(p)
}

func (b *bundleSum) cid() string {
	var sum [32]byte
	b.h.Sum(sum[:0])
	return adp.NewCID(adp.CodecRaw, sum)
}

// attest signs what was recomputed of a complete mirrored room: with the host's
// statement when there is one, and without when there is none and none is to be
// expected any more.
func (w *Witness) attest(ctx context.Context, r *replica.Replica, waited bool) error {
	if !w.o.Sign || !w.o.Witness {
		return nil
	}
	if !oneVersion(r) {
		return nil
	}
	s := Subject(r.Key)
	hashes := w.statements(s)
	keys := w.o.Agents(r.Origin)
	if w.Proven(s) || w.has(s, func(a *about) bool { return a.attested(w.self, hashes) }) {
		return nil
	}
	if len(hashes) == 0 && len(keys) > 0 && !waited {
		return errNotYet
	}
	if err := w.maySign(); err != nil { // before the work
		return err
	}
	sum, err := w.ended(ctx, r)
	if err != nil || sum == nil {
		return err
	}
	if sum.Withheld > 0 {
		w.log.Info("a room is not attested: not all of it can be recomputed", "origin", r.Origin, "room", r.RoomID, "withheld", sum.Withheld)
		return nil
	}
	root := adp.Encode(sum.Root[:])
	for _, h := range hashes {
		agrees, err := w.compareStatement(s, h, *sum)
		if err != nil || !agrees {
			return err
		}
	}
	if len(keys) > maxOriginKeys {
		keys = keys[:maxOriginKeys]
	}
	if keys == nil {
		keys = []adp.AgentID{}
	}
	a := Attestation{Subject: s, Complete: true, LastSeq: sum.Count, LastHash: sum.LastHash, ArchiveRoot: root, EventsCID: sum.EventsCID(),
		Source: r.Origin, OriginKeys: keys, Rules: Rules{Revision, RulesVersion}, VerifiedAt: w.o.Now()}
	if len(hashes) > 0 {
		a.Statement = &hashes[0]
	}
	if !oneVersion(r) { // it was seen while the archive was recomputed
		return nil
	}
	e, err := w.sign(TypeAttest, a)
	if err != nil {
		return err
	}
	w.log.Info("attestation signed", "origin", r.Origin, "room", r.RoomID, "records", sum.Count, "hash", e.Hash)
	return w.compareEarlier(s)
}

// oneVersion tells whether no other version of a room was seen, as an attestation says.
func oneVersion(r *replica.Replica) bool {
	v := r.Row().EffectiveVerdict()
	return v == replica.Verified || v == replica.Violations
}

// compareEarlier looks at the attestations that came before our own copy was whole.
func (w *Witness) compareEarlier(s Subject) error {
	w.mu.RLock()
	earlier := slices.Clone(w.book.subjects[s].attestations)
	w.mu.RUnlock()
	for _, it := range earlier {
		raw, ok, err := w.o.Store.Get(storeKey(it.typ, it.hash))
		if err != nil {
			return err
		}
		if !ok {
			continue // its commit is under way and ends with the same comparison
		}
		e, err := parseEnvelope(raw)
		if err != nil {
			return err
		}
		w.compareAttestation(it, e)
	}
	return nil
}

// compareStatement tells whether a statement says what the records amount to; if
// not, both sides are kept and nothing is signed.
func (w *Witness) compareStatement(s Subject, hash string, sum adp.Summary) (agrees bool, err error) {
	raw, ok, err := w.o.Store.Get(storeKey(TypeAnnounce, hash))
	if err != nil || !ok {
		return false, errors.Join(err, errors.New("witness: a statement that is listed cannot be read"))
	}
	e, err := parseEnvelope(raw)
	if err != nil {
		return false, err
	}
	st, err := ParseStatement(e)
	if err != nil {
		return false, err
	}
	ours := contentOf(sum)
	if !ours.differs(st.content()) {
		return true, nil
	}
	w.log.Error("ALARM: a host signed another archive than the one it served; nothing is attested", "origin", s.Origin, "room", s.RoomID, "statement", hash)
	held, err := adp.EncodeValue(map[string]any{"event_count": sum.Count, "last_seq": ours.lastSeq, "last_hash": ours.lastHash,
		"archive_root": ours.root, "events_sha3_256": adp.Encode(sum.Events[:]), "events_cid": ours.events})
	if err != nil {
		return false, err
	}
	return false, w.Evidence(Observation{Kind: "statement-mismatch", Subject: s, Seq: min(ours.lastSeq, st.LastSeq),
		Reason: "the host's statement differs from the records that it served", Held: []json.RawMessage{held.Raw()}, Other: []json.RawMessage{raw}})
}

// statements lists the hashes of the statements about a subject by keys that still
// speak for its origin, in the order of arrival.
func (w *Witness) statements(s Subject) (hashes []string) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if a := w.book.subjects[s]; a != nil {
		for _, it := range a.statements {
			if w.speaksFor(s.Origin, it.agent) {
				hashes = append(hashes, it.hash)
			}
		}
	}
	return hashes
}

func (w *Witness) has(s Subject, what func(*about) bool) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	a := w.book.subjects[s]
	return a != nil && what(a)
}

// by is the first item of a type by one signer.
func (a *about) by(typ string, agent adp.AgentID) *item {
	for _, it := range a.of(typ) {
		if it.agent == agent {
			return it
		}
	}
	return nil
}

// attested tells whether an agent has attested one of these statements, or, when
// there are none, the archive as such.
func (a *about) attested(agent adp.AgentID, hashes []string) bool {
	for _, it := range a.attestations {
		if it.agent != agent {
			continue
		}
		if len(hashes) == 0 {
			return true
		}
		for _, h := range hashes {
			if it.statement == h {
				return true
			}
		}
	}
	return false
}
