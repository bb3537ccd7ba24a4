package p2p

import (
	"net"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"golang.org/x/time/rate"
)

// One peer may send this many messages; what is above is dropped before it takes a place in the validation queue, so that a flood of
// one peer costs the others nothing. The burst is smaller than the queue.
const (
	messagesPerSecond = 256
	messagesBurst     = 256
	rpcsPerSecond     = 256 // control traffic and empty RPCs, too
	rpcsBurst         = 1024
)

type allowance struct{ messages, rpcs *rate.Limiter }

// intake meters what each peer sends. Pubsub calls inspect from its one event loop, so there is no lock.
type intake struct {
	g     *gossip
	peers map[peer.ID]*allowance
}

// inspect sees each RPC first. Messages above the peer's rate are cut from it. They are not marked as seen, so another peer, or the
// same one later, can bring them.
func (in *intake) inspect(from peer.ID, rpc *pubsub.RPC) error {
	if see := in.g.n.tune.inspect; see != nil {
		see(from, rpc)
	}
	a := in.of(from)
	now := time.Now()
	if !a.rpcs.AllowN(now, 1) {
		in.drop(rpc, 0)
		return errFlood
	}
	for i := range rpc.GetPublish() {
		if !a.messages.AllowN(now, 1) {
			in.drop(rpc, i)
			rpc.Publish = rpc.Publish[:i]
			break
		}
	}
	return nil
}

// drop counts the messages of rpc from the i-th on.
func (in *intake) drop(rpc *pubsub.RPC, i int) {
	for _, m := range rpc.GetPublish()[i:] {
		if in.g.joined(m.GetTopic()) { // others would be dropped anyway, and make no label
			in.g.n.metrics.message(m.GetTopic(), verdictThrottled)
		}
	}
}

func (in *intake) of(p peer.ID) *allowance {
	a := in.peers[p]
	if a == nil {
		if len(in.peers) >= 2*in.g.n.maxPeers {
			for id := range in.peers {
				if !in.g.n.connected(id) {
					delete(in.peers, id)
				}
			}
		}
		a = &allowance{rate.NewLimiter(messagesPerSecond, messagesBurst), rate.NewLimiter(rpcsPerSecond, rpcsBurst)}
		in.peers[p] = a
	}
	return a
}

// colocationFree lists the networks where many peers behind one address are no offence.
func colocationFree(private bool) []*net.IPNet {
	list := []string{"127.0.0.0/8", "::1/128"}
	if private {
		list = append(list, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
	}
	var out []*net.IPNet
	for _, s := range list {
		_, n, err := net.ParseCIDR(s)
		if err != nil {
			panic(err) // the list above is wrong
		}
		out = append(out, n)
	}
	return out
}

// tracer counts what pubsub drops on its own; what a validator decides is counted in judge.
type tracer struct{ g *gossip }

var _ pubsub.RawTracer = tracer{}

func (t tracer) RejectMessage(m *pubsub.Message, reason string) {
	if !t.g.joined(m.GetTopic()) {
		return
	}
	switch {
	case isThrottle(reason):
		t.g.n.metrics.message(m.GetTopic(), verdictThrottled)
	case reason == pubsub.RejectUnexpectedSignature || reason == pubsub.RejectUnexpectedAuthInfo:
		t.g.n.metrics.message(m.GetTopic(), verdictMalformed)
	}
}

func (t tracer) UndeliverableMessage(m *pubsub.Message) {
	if t.g.joined(m.GetTopic()) {
		t.g.n.metrics.message(m.GetTopic(), verdictUndelivered)
	}
}

func (tracer) OnNewOutboundStream(peer.ID, protocol.ID)             {}
func (tracer) OnClosedOutboundStream(peer.ID)                       {}
func (tracer) Join(string)                                          {}
func (tracer) Leave(string)                                         {}
func (tracer) Graft(peer.ID, string)                                {}
func (tracer) Prune(peer.ID, string)                                {}
func (tracer) ValidateMessage(*pubsub.Message)                      {}
func (tracer) DeliverMessage(*pubsub.Message)                       {}
func (tracer) DuplicateMessage(*pubsub.Message)                     {}
func (tracer) ThrottlePeer(peer.ID)                                 {}
func (tracer) RecvRPC(*pubsub.RPC)                                  {}
func (tracer) SendRPC(*pubsub.RPC, peer.ID)                         {}
func (tracer) SendRPCCompleted(*pubsub.RPC, peer.ID, time.Duration) {}
func (tracer) DropRPC(*pubsub.RPC, peer.ID)                         {}
