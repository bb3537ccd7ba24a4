package daemon

import (
	"context"
	"sync"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/p2p"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/mirror"
)

// signer signs what the relay and the observer of other hosts' rooms need with
// the agent key. Nonces are the time, and never repeat.
type signer struct {
	d *daemon

	mu   sync.Mutex
	last int64
}

func (s *signer) nonce() (now, nonce int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.d.edges.Now()
	s.last = max(s.last+1, now)
	return now, s.last
}

func (s *signer) sign(d adp.Draft) (*adp.Envelope, error) {
	d.CreatedAt, d.Nonce = s.nonce()
	return adp.Sign(s.d.key(keys.Agent), d)
}

// head signs an agent-witness/1.0 envelope.
func (s *signer) head(typ string, payload any) (*adp.Envelope, error) {
	return s.sign(adp.Draft{Protocol: adp.WitnessProtocol, Type: typ, Payload: payload})
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
	d.log.Warn("a host signed two heads that cannot both hold", "signer", a.Actor, "first", a.Hash, "second", b.Hash)
}
