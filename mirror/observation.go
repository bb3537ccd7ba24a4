package mirror

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
)

// Kinds of an Observation.
const (
	KindFork            = "fork"             // another authentic record at a seq that we hold
	KindGenesis         = "another-genesis"  // another first record under the same room ID
	KindStaleHead       = "stale-head"       // the host shows less than it has shown
	KindArchiveMismatch = "archive-mismatch" // the manifest does not fit the records
)

// Observation is what this daemon saw of a host, without signatures that would
// prove it to others.
type Observation struct {
	Kind    string `json:"kind"`
	Origin  string `json:"origin"`
	RoomID  string `json:"room_id"`
	Genesis string `json:"genesis"` // of the replica that we serve
	Seq     int64  `json:"seq"`     // where the sides part
	Reason  string `json:"reason"`
	SeenAt  int64  `json:"seen_at"` // Unix ms
	// Ours holds records from Seq on, whole; Theirs too, or what the host said
	// instead: a room resource, a manifest.
	Ours   []json.RawMessage `json:"ours"`
	Theirs []json.RawMessage `json:"theirs"`
}

// Bounds of one side of an Observation: at least one record, then as many as fit.
const (
	sideRecords = 16
	sideBytes   = 256 << 10
)

func side(recs []*adp.Record) (out []json.RawMessage) {
	total := 0
	for i, r := range recs {
		if total += len(r.JSON()); i > 0 && (i == sideRecords || total > sideBytes) {
			break
		}
		out = append(out, r.JSON())
	}
	return out
}

// held is our own side from a seq on.
func held(r *replica.Replica, seq int64) (out []json.RawMessage, err error) {
	recs, err := r.Read(seq-1, sideRecords, sideBytes)
	if replica.IsGone(err) { // the reason names its hash
		return nil, nil
	}
	for _, rec := range recs {
		out = append(out, rec)
	}
	return out, err
}

func (m *Mirror) observe(kind string, r *replica.Replica, seq int64, reason string, theirs []json.RawMessage) error {
	ours, err := held(r, seq)
	if err != nil {
		return local(err)
	}
	m.log.Warn("a host contradicts itself", "kind", kind, "origin", r.Origin, "room", r.RoomID, "seq", seq, "reason", reason)
	m.o.Observed(Observation{Kind: kind, Origin: r.Origin, RoomID: r.RoomID, Genesis: r.Genesis, Seq: seq, Reason: reason,
		SeenAt: m.o.Now(), Ours: ours, Theirs: theirs})
	return nil
}

// save changes the head row of a replica, with what else goes into the same
// commit, and tells about it. change answers false when there is nothing to do.
func (m *Mirror) save(r *replica.Replica, extra *store.Batch, change func(*replica.Row) bool) error {
	done := make(chan error, 1)
	var before, after replica.Row
	err := r.Take(func(t *replica.Turn) error {
		before = *t.Row()
		if !change(t.Row()) {
			done <- errUnchanged
			return nil
		}
		after = *t.Row()
		return t.Save(extra, func(err error) { done <- err })
	})
	if err == nil {
		err = <-done
	}
	switch {
	case err == errUnchanged:
		return nil
	case err != nil:
		return local(err)
	}
	m.moved(before, after)
	m.o.Changed(r)
	return nil
}

// moved logs once, and counts, that a room has another state or verdict.
func (m *Mirror) moved(before, after replica.Row) {
	was, is := before.EffectiveVerdict(), after.EffectiveVerdict()
	if before.State == after.State && was == is {
		return
	}
	if before.State != after.State {
		m.metrics.moves.WithLabelValues("room", after.State).Inc()
	}
	if was != is {
		m.metrics.moves.WithLabelValues("verdict", is).Inc()
	}
	m.log.Info("a room changed its state", "origin", after.Origin, "room", after.RoomID, "from", before.State, "to", after.State, "verdict_was", was, "verdict", is,
		"seq", after.Seq, "bytes", after.Bytes, "violations", after.Violations, "unverifiable", after.Unverifiable, "withheld", after.Withheld, "reason", after.Reason)
}

var errUnchanged = fmt.Errorf("nothing to change")

// maxBadBytes bounds what is kept of a record that was refused.
const maxBadBytes = 2 << 10

// broken stops a room before a seq.
func (m *Mirror) broken(r *replica.Replica, seq int64, cause error, raw []byte) error {
	reason := fmt.Sprintf("seq %d: %v", seq, cause)
	err := m.save(r, nil, func(row *replica.Row) bool {
		if row.Verdict == replica.Forked || row.Verdict == replica.Equivocated || row.Verdict == replica.Broken && row.Reason == reason {
			return false
		}
		row.Verdict, row.Reason, row.BadBytes = replica.Broken, reason, bytes.Clone(raw[:min(len(raw), maxBadBytes)]) // rows stay in memory
		m.log.Warn("a room is broken", "origin", r.Origin, "room", r.RoomID, "reason", reason)
		return true
	})
	if err != nil {
		return err
	}
	return stuck(reason)
}

// clear takes back what no longer holds, once the host and we agree.
func clearRow(row *replica.Row) (changed bool) {
	if row.Verdict == replica.Broken {
		row.Verdict, row.Reason, row.BadBytes, changed = "", "", nil, true
	}
	if row.State != replica.Following && row.State != replica.Complete {
		row.State, changed = replica.Following, true
		if row.Verdict == "" {
			row.Reason = ""
		}
	}
	if row.Verdict == "" && row.Reason != "" {
		row.Reason, changed = "", true
	}
	return changed
}

type metrics struct {
	polls   *prometheus.CounterVec
	relay   *prometheus.CounterVec
	records *prometheus.CounterVec
	bytes   prometheus.Counter
	moves   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "witan_mirror_polls_total",
			Help: "Looks at the room list of other hosts, by result (ok, failed)."}, []string{"result"}),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "witan_mirror_records_total",
			Help: "Records of other hosts, by what became of them (allowed, violation, unverifiable, refused, restored)."}, []string{"outcome"}),
	}
	m.relay = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "witan_mirror_relay_total",
		Help: "The relay: messages by verdict (accept, ignore, reject); heads published, followed, and followed by asking the host (pulled) or others (elsewhere); records_dropped for want of memory."}, []string{"event"})
	m.bytes = prometheus.NewCounter(prometheus.CounterOpts{Name: "witan_mirror_bytes_total", Help: "Bytes of records of other hosts that were stored."})
	m.moves = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "witan_mirror_transitions_total",
		Help: "How often a host (of=host) or a room (of=room) came into a state, or a room got a verdict (of=verdict)."}, []string{"of", "to"})
	if reg != nil {
		reg.MustRegister(m.moves, m.bytes, m.polls, m.records, m.relay)
	}
	return m
}
