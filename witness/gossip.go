package witness

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/adp"
)

// Verdict is what becomes of a message from a peer; its values are those of the
// gossip layer.
type Verdict int

const (
	Accept Verdict = iota // keep it and pass it on
	Ignore                // drop it; no harm to the peer that sent it
	Reject                // no honest peer passes this on
)

func (v Verdict) String() string { return [...]string{"accept", "ignore", "reject"}[v] }

const (
	inboxSize    = 1024
	inboxBatch   = 64
	publishQueue = 1024
	publishTries = 4

	// Of one signer, and of all strangers together; what is above it comes with the
	// next catch-up.
	signerRate, signerBurst = 20, 400
)

// rates bounds what each signer sends by gossip.
type rates struct {
	mu        sync.Mutex
	signers   map[adp.AgentID]*rate.Limiter
	strangers *rate.Limiter
}

// maxRates bounds the signers that are remembered; only admitted ones are, so that
// it takes many bindings to come near.
const maxRates = 10_000

func (r *rates) allow(p parsed, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.item != nil && p.item.stranger {
		if r.strangers == nil {
			r.strangers = rate.NewLimiter(signerRate, signerBurst)
		}
		return r.strangers.AllowN(now, 1)
	}
	var agent adp.AgentID
	if p.proof != nil {
		agent = p.proof.Agent
	} else {
		agent = p.item.agent
	}
	l := r.signers[agent]
	if l == nil {
		if len(r.signers) >= maxRates {
			clear(r.signers)
		}
		l = rate.NewLimiter(signerRate, signerBurst)
		r.signers[agent] = l
	}
	return l.AllowN(now, 1)
}

// Validate judges one message of either topic. It only computes: no disk, no
// network, no waiting. from is the peer that passed the message on; it does not
// matter who that is.
func (w *Witness) Validate(from string, data []byte) Verdict {
	v, p := w.judge(data)
	if v == Accept && !w.rates.allow(p, time.UnixMilli(w.o.Now())) {
		v = Ignore
	}
	w.metrics.judged.WithLabelValues(v.String()).Inc()
	return v
}

// judge is Validate without the rate.
func (w *Witness) judge(data []byte) (Verdict, parsed) {
	w.meet()
	if len(data) > MaxEvidence {
		return Reject, parsed{}
	}
	v, err := adp.Scan(data)
	if err != nil || v.Kind() != adp.Object || !v.IsCanonical() || len(v.Raw()) != len(data) {
		return Reject, parsed{}
	}
	if v.Get("class").Exists() {
		return w.judgeProof(v, len(data))
	}
	if len(data) > MaxStatement {
		return Reject, parsed{}
	}
	e, err := adp.ParseEnvelope(v)
	if err != nil || e.CheckShape() != nil || e.Protocol != adp.WitnessProtocol {
		return Reject, parsed{}
	}
	if e.Type != TypeAnnounce && e.Type != TypeAttest { // a later type is no offence
		return Ignore, parsed{}
	}
	it, err := readItem(e)
	if err != nil || e.CheckHash() != nil {
		return Reject, parsed{}
	}
	if e.CreatedAt > w.o.Now()+futureSkew || !w.admits(it, e.CreatedAt) {
		return Ignore, parsed{}
	}
	w.mu.RLock()
	place, _ := w.book.place(it)
	w.mu.RUnlock()
	if place == placeKnown || place == placeFull {
		return Ignore, parsed{}
	}
	// last, since it costs most; before the rate, since anybody can name a signer
	if e.CheckSignature() != nil {
		return Reject, parsed{}
	}
	return Accept, parsed{env: e, item: it}
}

func (w *Witness) judgeProof(v adp.Value, size int) (Verdict, parsed) {
	claimed := Proof{Kind: v.Get("kind").Text(), Agent: adp.AgentID(v.Get("agent").Text()),
		Subject: Subject{v.Get("origin").Text(), v.Get("room_id").Text(), v.Get("genesis").Text()}}
	if !adp.IsAgentID(string(claimed.Agent)) {
		return Reject, parsed{}
	}
	// first, or a stranger's pairs of signatures would cost us two checks each
	if !w.answerable(claimed.Kind, claimed.Origin, claimed.Agent) {
		return Ignore, parsed{}
	}
	w.mu.RLock()
	full := w.book.evidence[claimed.id()] || w.book.enough(claimed.Agent)
	w.mu.RUnlock()
	if full {
		return Ignore, parsed{}
	}
	p, err := verifyProof(v, size) // that it is about what it claims is a part of this
	if err != nil {
		return Reject, parsed{}
	}
	return Accept, parsed{proof: p}
}

// answerable tells whether a proof of a kind against a key is of interest: only if
// the key speaks for an origin that we follow, or for us, or is one whose word as a
// witness we would take. Anybody can make a key, and two signatures with it. A kind
// that is not known is a later one.
func (w *Witness) answerable(kind, origin string, key adp.AgentID) bool {
	switch kind {
	case KindStatements, KindHeads:
		return w.speaksFor(origin, key)
	case KindCheckpoints, KindInclusion:
		return slices.ContainsFunc(w.logKeys(origin), func(k ed25519.PublicKey) bool { return adp.NewAgentID(k) == key })
	case KindAttestations:
		return w.attester(key)
	case KindCosignatures, KindCosignedInclusion:
		return slices.ContainsFunc(w.cosigners(), func(k ed25519.PublicKey) bool { return adp.NewAgentID(k) == key })
	}
	return false
}

// admits tells whether what a key said at a time (Unix ms) is kept (federation:
// Statements; Gossip). A key may speak for its own origin only, and as long as it is
// bound.
func (w *Witness) admits(it *item, at int64) bool {
	if it.typ == TypeAnnounce {
		return w.spokeFor(it.subject.Origin, it.agent, at)
	}
	if it.stranger = !w.attesterAt(it.agent, at); !it.stranger {
		return true
	}
	w.mu.RLock()
	st := w.book.byHash[it.statement]
	w.mu.RUnlock()
	return it.subject.Origin == w.o.Origin && it.content.complete &&
		st != nil && st.typ == TypeAnnounce && st.subject == it.subject && !st.content.differs(it.content)
}

// Receive takes a message that Validate accepted. It does not wait for the disk.
func (w *Witness) Receive(from string, data []byte) {
	v, p := w.judge(append([]byte(nil), data...))
	if v != Accept {
		return // another copy came first, or a binding has changed
	}
	select {
	case w.inbox <- p:
	default:
		w.metrics.dropped.WithLabelValues("inbox").Inc()
	}
}

// intake stores what Receive took, several messages in one commit.
func (w *Witness) intake(ctx context.Context) error {
	for {
		var batch []parsed
		select {
		case p := <-w.inbox:
			batch = append(batch, p)
		case <-ctx.Done():
			return nil
		}
		for more := true; more && len(batch) < inboxBatch; {
			select {
			case p := <-w.inbox:
				batch = append(batch, p)
			default:
				more = false
			}
		}
		if err := w.keep(batch); err != nil {
			w.log.Error("witness cannot keep what peers sent; catch-up will bring it again", "messages", len(batch), "err", err)
		}
	}
}

type message struct {
	topic string
	data  []byte
}

// publisher sends what we signed or proved. Gossip is a hint: what cannot be sent
// is found by catch-up.
type publisher struct {
	mu                   sync.Mutex
	statements, evidence func(context.Context, []byte) error
	queue                chan message
}

// SetPublisher says how to send to the two topics. Until it is called, and with
// nil, nothing is sent.
func (w *Witness) SetPublisher(statements, evidence func(context.Context, []byte) error) {
	w.publisher.mu.Lock()
	defer w.publisher.mu.Unlock()
	w.publisher.statements, w.publisher.evidence = statements, evidence
}

func (p *publisher) put(w *Witness, topic string, data []byte) {
	select {
	case p.queue <- message{topic, data}:
	default:
		w.metrics.dropped.WithLabelValues("publish").Inc()
	}
}

func (p *publisher) run(ctx context.Context, w *Witness) error {
	for {
		var m message
		select {
		case m = <-p.queue:
		case <-ctx.Done():
			return nil
		}
		p.mu.Lock()
		send := p.statements
		if m.topic == TopicEvidence {
			send = p.evidence
		}
		p.mu.Unlock()
		if send == nil {
			continue
		}
		_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, send(ctx, m.data) },
			backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxTries(publishTries))
		if err != nil && !errors.Is(err, context.Canceled) {
			w.log.Warn("witness cannot gossip; peers will find it by catch-up", "topic", m.topic, "err", err)
		}
	}
}
