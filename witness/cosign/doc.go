// Package cosign is both sides of C2SP tlog-witness: a Witness cosigns the
// checkpoints of the logs that it knows, and a Collector asks the witnesses of our
// own log for theirs.
//
// A Witness keeps one thing for each log, the checkpoint that it cosigned last, and
// signs another only when a proof shows that the tree has grown from that one. The
// new checkpoint is compared with the stored one and on the disk before the
// signature gets out; of two requests at the same time one loses. What is stored is
// never made up when it cannot be read: then nothing is signed for that log.
//
// A Collector never holds up who signs: it is told that the log has grown and asks
// in its own time, each witness apart, ever less often while one fails.
//
// The package knows nothing of rooms and archives, and does not say whose
// cosignature counts. The formats are in package cosignature; all requests to others
// go through package fetch.
package cosign

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/store"
)

// Prefix is the path under which a daemon is a witness: <origin>/witness is both its
// submission prefix and its monitoring prefix, and without the scheme its name.
const Prefix = "/witness"

// Name is the key name of the witness of an origin.
func Name(origin string) string {
	_, authority, _ := strings.Cut(origin, "://")
	return authority + Prefix
}

// VerifierKey is the verifier key of the witness of an origin, as others are
// configured with it.
func VerifierKey(origin string, key ed25519.PublicKey) (string, error) {
	v, err := cosignature.NewVerifier(Name(origin), cosignature.Witness, key)
	if err != nil {
		return "", err
	}
	return v.String(), nil
}

// Log is a log that is witnessed because the operator said so.
type Log struct {
	Origin string // its origin line
	Key    *cosignature.Verifier
}

// Options make a Witness. Its functions are called from many goroutines.
type Options struct {
	Name string
	// Key is the present cosigner key.
	Key   func() ed25519.PrivateKey
	Store *store.Store
	// Logs are witnessed; one that signs with several keys stands there several times.
	Logs []Log
	// Bound lists the log keys that are bound to the origin that an origin line is of, none
	// for a line that no followed origin has. Their name is the line. May be nil.
	Bound func(line string) []ed25519.PublicKey
	// MaySign tells why nothing may be signed now, such as a store that is not the
	// newest. Nil: nothing speaks against it.
	MaySign func() error
	// Contradicted is given two checkpoints, signed by one log, of one size and with
	// different roots: that log has two stories. May be nil.
	Contradicted func(line string, held, shown []byte)
	// Seen is given each checkpoint that a known key has signed, whether it is cosigned
	// or not. It must be quick. May be nil.
	Seen func(signed []byte)

	Now        func() int64 // Unix ms
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Witness is safe for concurrent use.
type Witness struct {
	o        Options
	log      *slog.Logger
	put      func(*store.Batch) error // Store.Commit
	requests *prometheus.CounterVec
}

// New makes a Witness.
func New(o Options) (*Witness, error) {
	if o.Store == nil || o.Key == nil {
		return nil, errors.New("cosign: a store and a cosigner key are needed")
	}
	if _, err := cosignature.NewVerifier(o.Name, cosignature.Witness, o.Key().Public().(ed25519.PublicKey)); err != nil {
		return nil, fmt.Errorf("cosign: %w", err)
	}
	if o.Bound == nil {
		o.Bound = func(string) []ed25519.PublicKey { return nil }
	}
	if o.MaySign == nil {
		o.MaySign = func() error { return nil }
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := &Witness{o: o, log: o.Log, put: o.Store.Commit,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "witan_cosign_requests_total", Help: "Checkpoints of other logs that were shown, by HTTP status of the answer."}, []string{"status"})}
	if o.Registerer != nil {
		if err := o.Registerer.Register(w.requests); err != nil {
			return nil, fmt.Errorf("cosign: register metrics: %w", err)
		}
	}
	return w, nil
}
