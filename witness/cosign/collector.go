package cosign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/store"
)

// MaxWitnesses bounds the witnesses of a log: their lines have to fit into what readers
// of a checkpoint take.
const MaxWitnesses = 32

// collectedName is where the store keeps what was collected.
const collectedName = "log.cosignatures"

// Asked is a witness of our log.
type Asked struct {
	URL string // its submission prefix
	Key *cosignature.Verifier
}

// CollectorOptions make a Collector. Its functions are called from many goroutines.
type CollectorOptions struct {
	Witnesses []Asked
	// Checkpoint is the newest published checkpoint of our log, signed by the log alone;
	// nil when there is none to show.
	Checkpoint func() []byte
	// Prove makes the consistency proof between two sizes of our log.
	Prove func(from, to uint64) ([][]byte, error)
	Store *store.Store
	// Do sends a request: fetch.Client.Do.
	Do func(context.Context, fetch.Request) (*fetch.Response, error)
	// Ahead is given what a witness shows when it says that it has cosigned more of our
	// log than we hold. Nothing vouches for it: it is for the callee to look whether our own key
	// has signed it, which means that this store is an older copy. May be nil.
	Ahead func(note []byte)
	// Agreed is called each time that a witness has cosigned the newest checkpoint: it has
	// seen no more of our log than we hold. Doubts is called when one says that it has
	// cosigned what our log does not hold or does not follow from, and again after a start,
	// until it agrees; line is the origin line of that log. Either may be nil.
	Agreed func(witness string)
	Doubts func(witness, line, reason string)

	// Every is the least time between two requests to one witness; 0 means 1 s.
	Every time.Duration
	// RetryMin and RetryMax bound the pause after a failure; 0 means 5 s and 10 min.
	RetryMin, RetryMax time.Duration

	Now        func() int64 // Unix ms
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Collector asks the witnesses of our log. It is safe for concurrent use.
type Collector struct {
	o       CollectorOptions
	log     *slog.Logger
	asked   *prometheus.CounterVec
	peers   []*peer
	storing sync.Mutex // held while what was collected is written

	mu sync.Mutex // guards the collected of all peers, and their last error
}

// peer is one witness. wake holds a token while the log may have grown.
type peer struct {
	Asked
	wake chan struct{}
	kept collected
	err  error
	met  bool // it has answered since the start; for follow alone
}

// collected is what a witness has given.
type collected struct {
	Origin string `json:"origin"` // of the log
	Size   uint64 `json:"size"`   // that it has cosigned last, as far as we know
	Time   int64  `json:"time"`   // of the cosignature, Unix seconds
	Note   []byte `json:"note"`   // as the log has signed it
	Lines  string `json:"lines"`  // the signature lines of the witness

	Doubt string `json:"doubt,omitempty"` // what it holds against our log
}

// NewCollector reads what was collected before.
func NewCollector(o CollectorOptions) (*Collector, error) {
	if o.Checkpoint == nil || o.Prove == nil || o.Store == nil || o.Do == nil {
		return nil, errors.New("cosign: a log, a store and a way to ask are needed")
	}
	if len(o.Witnesses) > MaxWitnesses {
		return nil, fmt.Errorf("cosign: %d witnesses of the log; %d is the limit", len(o.Witnesses), MaxWitnesses)
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.RetryMin == 0 {
		o.RetryMin = 5 * time.Second
	}
	if o.RetryMax == 0 {
		o.RetryMax = 10 * time.Minute
	}
	c := &Collector{o: o, log: o.Log,
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "witan_log_witness_requests_total", Help: "Requests for cosignatures of the daemon's log, by outcome."}, []string{"outcome"})}
	if o.Registerer != nil {
		if err := o.Registerer.Register(c.asked); err != nil {
			return nil, fmt.Errorf("cosign: register metrics: %w", err)
		}
	}
	before := map[string]collected{}
	raw, found, err := o.Store.Get(store.Meta(collectedName))
	if err != nil {
		return nil, err
	}
	if found {
		if err := json.Unmarshal(raw, &before); err != nil {
			return nil, fmt.Errorf("cosign: read the collected cosignatures: %w", err)
		}
	}
	for _, a := range o.Witnesses {
		if a.Key == nil || a.Key.Kind() != cosignature.Witness {
			return nil, fmt.Errorf("cosign: the witness %s needs a verifier key of type 4", a.URL)
		}
		if u, err := url.Parse(a.URL); err != nil || u.Host == "" {
			return nil, fmt.Errorf("cosign: %q is not the URL of a witness", a.URL)
		}
		a.URL = strings.TrimRight(a.URL, "/")
		p := &peer{Asked: a, wake: make(chan struct{}, 1), kept: before[a.Key.String()]}
		if _, _, err := cosignature.Open(cosignature.Append(cosignature.Text(p.kept.Note), p.kept.Lines), a.Key); err != nil {
			p.kept.Note, p.kept.Lines = nil, "" // the size is a guess that the witness corrects
		}
		p.wake <- struct{}{} // it may have been off when the log grew
		c.peers = append(c.peers, p)
	}
	return c, nil
}

// Grown says that there may be a new checkpoint. It does not wait.
func (c *Collector) Grown() {
	for _, p := range c.peers {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// Cosigned appends the cosignatures of a signed checkpoint of our log to it, as far as
// there are any yet.
func (c *Collector) Cosigned(signed []byte) []byte {
	text := cosignature.Text(signed)
	out := append([]byte(nil), signed...)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.peers {
		if text != "" && cosignature.Text(p.kept.Note) == text {
			out = append(out, p.kept.Lines...)
		}
	}
	return out
}

// Newest is the newest checkpoint that a witness has cosigned, with all of its
// cosignatures; nil when there is none. It can be older than the one of the log.
func (c *Collector) Newest() []byte {
	c.mu.Lock()
	var best collected
	for _, p := range c.peers {
		if p.kept.Note != nil && (best.Note == nil || p.kept.Size > best.Size) {
			best = p.kept
		}
	}
	c.mu.Unlock()
	if best.Note == nil {
		return nil
	}
	return c.Cosigned(best.Note)
}

// Status tells the operator how a witness does.
type Status struct {
	Witness string `json:"witness"` // its name
	URL     string `json:"url"`
	Size    uint64 `json:"size"`            // of the checkpoint that it cosigned last
	Time    int64  `json:"time"`            // when, Unix seconds
	Error   string `json:"error,omitempty"` // why the last request failed
}

// Status tells how each witness does, in the order of the settings.
func (c *Collector) Status() []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []Status{}
	for _, p := range c.peers {
		s := Status{Witness: p.Key.Name(), URL: p.URL, Size: p.kept.Size, Time: p.kept.Time}
		if p.err != nil {
			s.Error = p.err.Error()
		}
		all = append(all, s)
	}
	return all
}

// keep stores what a witness has given. What cannot be stored is shown all the same: a
// restart only has to ask again.
func (c *Collector) keep(p *peer, got collected) {
	c.storing.Lock()
	defer c.storing.Unlock()
	all := map[string]collected{}
	c.mu.Lock()
	p.kept = got
	for _, p := range c.peers {
		all[p.Key.String()] = p.kept
	}
	c.mu.Unlock()
	raw, err := json.Marshal(all)
	if err == nil {
		var b store.Batch
		b.Put(store.Meta(collectedName), raw)
		err = c.o.Store.Commit(&b)
	}
	if err != nil {
		c.log.Warn("cosignatures of the log could not be stored", "err", err)
	}
}
