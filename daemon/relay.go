package daemon

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/p2p"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/mirror"
)

// signer signs what the relay and the observer of other hosts' rooms need with
// the agent key. Nonces are the time where that is greater than the last one; a
// span of them is reserved on the disk before the first of it is used, so that
// none repeats after a restart either, whatever the clock says.
type signer struct {
	d *daemon

	mu       sync.Mutex
	last     int64
	reserved int64 // nonces up to this one may be used
}

// nonceSpan is how many nonces are reserved at once: ten minutes of time.
const nonceSpan = 600_000

const metaNonce = "signer.nonce"

func newSigner(d *daemon) (*signer, error) {
	raw, ok, err := d.st.Get(store.Meta(metaNonce))
	if err != nil || !ok {
		return &signer{d: d}, err
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the reserved nonces: %w", err)
	}
	return &signer{d: d, last: n, reserved: n}, nil
}

func (s *signer) nonce() (now, nonce int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.d.edges.Now()
	next := max(s.last+1, now)
	if next > s.reserved {
		reserve := next + nonceSpan
		var b store.Batch
		b.Put(store.Meta(metaNonce), strconv.AppendInt(nil, reserve, 10))
		if err := s.d.st.Commit(&b); err != nil {
			return 0, 0, err
		}
		s.reserved = reserve
	}
	s.last = next
	return now, next, nil
}

func (s *signer) sign(d adp.Draft) (*adp.Envelope, error) {
	var err error
	if d.CreatedAt, d.Nonce, err = s.nonce(); err != nil {
		return nil, err
	}
	return adp.Sign(s.d.key(keys.Agent), d)
}

// head signs an agent-witness/1.0 envelope.
func (s *signer) head(typ string, payload any) (*adp.Envelope, error) {
	e, err := s.sign(adp.Draft{Protocol: adp.WitnessProtocol, Type: typ, Payload: payload})
	if err == nil && typ == mirror.TypeHead {
		s.d.witness.Head(e) // shown to peers by catch-up, since gossip drops
	}
	return e, err
}

// event signs a room event of our own agent.
func (s *signer) event(d adp.Draft) (*adp.Envelope, error) {
	d.Protocol = adp.Protocol
	return s.sign(d)
}

// tokenTTL is how long a request token lives, in seconds.
const tokenTTL = 120

func (s *signer) token(origin string) (string, error) {
	return adp.SignToken(s.d.key(keys.Agent), origin, s.d.edges.Now()/1000, tokenTTL)
}

// connectRelay joins the relay topic and answers peers that fill gaps.
func (d *daemon) connectRelay() error {
	validate := func(from string, data []byte) p2p.Verdict { return p2p.Verdict(d.mirror.Validate(from, data)) }
	topic, err := d.node.Join(mirror.TopicRelay, mirror.MaxRelay, validate, d.mirror.Receive)
	if err != nil {
		return err
	}
	d.node.HandleStream(mirror.ProtocolRoomSync, mirror.MaxSyncRequest, mirror.MaxSyncResponse, d.mirror.ServeRoomSync)
	d.node.HandleStream(replica.ProtocolContent, replica.MaxContentRequest, replica.MaxContentResponse, d.set.ServeContent)
	d.mirror.Connect(mirror.Network{
		Publish: topic.Publish,
		Request: func(ctx context.Context, peer string, request []byte) ([]byte, error) {
			return d.node.Request(ctx, peer, mirror.ProtocolRoomSync, request, mirror.MaxSyncResponse)
		},
		Peers: d.node.Peers,
	})
	return nil
}

// hosted follows a commit of one of our own rooms.
func (d *daemon) hosted(r *replica.Replica) {
	d.reindex(r)
	if d.mirror != nil { // the host opens before the mirror does
		d.mirror.Publish(r)
	}
}

// contradicted keeps two heads of one key that cannot both hold.
func (d *daemon) contradicted(a, b *adp.Envelope) {
	d.witness.Heads(a, b)
}
