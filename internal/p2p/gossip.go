package p2p

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"
)

const (
	// MaxMessage is the largest maxBytes that Join takes, in bytes.
	MaxMessage = 1 << 20

	maxRPC           = MaxMessage + 64<<10 // a message with its topic; larger RPCs reset their stream
	validateQueue    = 512                 // messages that wait for a validator, of all topics
	handleQueue      = 256                 // accepted messages that wait for the handler of their topic
	maxSubscriptions = 256                 // in one RPC of a peer
)

// Verdict is what a validator says about a message.
type Verdict int

const (
	// Accept: hand it to the handler and pass it on.
	Accept Verdict = iota
	// Ignore: drop it, with no harm to the peer that sent it. Its bytes stay "seen" for two minutes: the same message from other
	// peers is not validated again in that time, so what may become acceptable must be fetched another way.
	Ignore
	// Reject: drop it and count it against the peer that sent it. Only for what no honest peer would have passed on. A peer with
	// more than about ten of these in an hour is graylisted: nothing it sends is looked at.
	Reject
)

// gossip is the pubsub router and the topics joined.
//
// Messages carry no author and no libp2p signature (StrictNoSign), and a message ID is the SHA-256 of topic and content. Payloads are
// envelopes signed by their makers, so a second signature would only say who first published the bytes, which anyone may do; with
// content IDs a message is the same message whoever publishes it again, so gossip stays deduplicated, and no peer can be blamed
// through a forged author field. Since pubsub refuses author fields under this policy, they cannot be used to vary an ID either.
type gossip struct {
	n      *Node
	ps     *pubsub.PubSub
	mu     sync.RWMutex // guards topics; no other lock is taken under it
	topics map[string]*Topic
	intake intake
}

// Topic is a gossip topic that the node has joined.
type Topic struct {
	n        *Node
	name     string
	maxBytes int
	topic    *pubsub.Topic
	validate func(from string, data []byte) Verdict
	handle   func(from string, data []byte)
}

func newGossip(n *Node, private bool) (*gossip, error) {
	g := &gossip{n: n, topics: map[string]*Topic{}}
	g.intake = intake{g: g, peers: map[peer.ID]*allowance{}}
	scores, thresholds := scoring(private)
	opts := []pubsub.Option{
		pubsub.WithNoAuthor(),
		pubsub.WithMessageSignaturePolicy(pubsub.StrictNoSign),
		pubsub.WithMessageIdFn(contentID),
		pubsub.WithMaxMessageSize(maxRPC),
		pubsub.WithFloodPublish(true), // own messages go to every peer of the topic: no wait for a mesh to form
		pubsub.WithPeerExchange(false),
		pubsub.WithPeerScore(scores, thresholds),
		pubsub.WithSubscriptionFilter(g),
		pubsub.WithAppSpecificRpcInspector(g.intake.inspect),
		pubsub.WithRawTracer(tracer{g}),
		// Validators run inside these workers, so that their number is the bound. What does not fit the queue is dropped unseen.
		pubsub.WithValidateWorkers(max(1, runtime.GOMAXPROCS(0))),
		pubsub.WithValidateQueueSize(validateQueue),
	}
	if see := n.tune.score; see != nil {
		opts = append(opts, pubsub.WithPeerScoreInspect(pubsub.PeerScoreInspectFn(see), 50*time.Millisecond))
	}
	ps, err := pubsub.NewGossipSub(n.ctx, n.host, opts...)
	if err != nil {
		return nil, fmt.Errorf("p2p: start gossip: %w", err)
	}
	g.ps = ps
	return g, nil
}

// contentID is SHA-256 over the length of the topic (8 bytes), the topic and the data.
func contentID(m *pb.Message) string {
	h := sha256.New()
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(m.GetTopic())))
	h.Write(size[:])
	h.Write([]byte(m.GetTopic()))
	h.Write(m.GetData())
	return string(h.Sum(nil))
}

// Join subscribes to a topic. It must be called before Run, once for a topic.
//
// validate is called for each new message from a peer of at most maxBytes bytes (longer ones are rejected), by at most GOMAXPROCS
// goroutines over all topics, so it must not wait for anything. handle is called for accepted ones, one at a time per topic, and must
// be quick: when 256 are waiting, further ones are passed on to other peers but not handled. from is the peer that passed the message
// on, not its maker. Neither function may change or keep data. Messages that this node publishes go through neither.
func (n *Node) Join(topic string, maxBytes int, validate func(from string, data []byte) Verdict, handle func(from string, data []byte)) (*Topic, error) {
	if topic == "" || maxBytes <= 0 || maxBytes > MaxMessage {
		return nil, fmt.Errorf("p2p: join %q with messages of at most %d bytes: want a name, and 1 to %d bytes", topic, maxBytes, MaxMessage)
	}
	if validate == nil || handle == nil {
		return nil, fmt.Errorf("p2p: join %q: a validator and a handler are needed", topic)
	}
	if n.started() {
		return nil, fmt.Errorf("p2p: join %q: the node already runs; join before Run", topic)
	}
	t := &Topic{n: n, name: topic, maxBytes: maxBytes, validate: validate, handle: handle}
	g := n.gossip
	g.mu.Lock()
	if g.topics[topic] != nil {
		g.mu.Unlock()
		return nil, fmt.Errorf("p2p: join %q: joined already", topic)
	}
	g.topics[topic] = t
	g.mu.Unlock()

	err := g.ps.RegisterTopicValidator(topic, t.judge, pubsub.WithValidatorInline(true))
	if err == nil {
		t.topic, err = g.ps.Join(topic)
	}
	if err == nil {
		err = t.topic.SetScoreParams(topicScoring())
	}
	var sub *pubsub.Subscription
	if err == nil {
		self := n.host.ID()
		sub, err = t.topic.Subscribe(pubsub.WithBufferSize(handleQueue),
			pubsub.WithMessageFilter(func(m *pubsub.Message) bool { return m.ReceivedFrom != self }))
	}
	if err != nil {
		return nil, fmt.Errorf("p2p: join %q: %w", topic, err)
	}
	if !n.begin() {
		return nil, ErrClosed
	}
	go t.deliver(sub)
	return t, nil
}

// deliver hands accepted messages to the handler until the node closes.
func (t *Topic) deliver(sub *pubsub.Subscription) {
	defer t.n.tasks.Done()
	for {
		m, err := sub.Next(t.n.ctx)
		if err != nil {
			if t.n.ctx.Err() == nil {
				t.n.log.Error("p2p topic ended", "topic", t.name, "err", err)
			}
			return
		}
		t.handle(m.ReceivedFrom.String(), m.GetData())
	}
}

// judge is the pubsub validator of the topic.
func (t *Topic) judge(_ context.Context, from peer.ID, m *pubsub.Message) pubsub.ValidationResult {
	if from == t.n.host.ID() {
		return pubsub.ValidationAccept // published here; Publish has checked the size
	}
	if len(m.GetData()) > t.maxBytes {
		t.n.metrics.message(t.name, verdictOversize)
		return pubsub.ValidationReject
	}
	switch v := t.validate(from.String(), m.GetData()); v {
	case Accept:
		t.n.metrics.message(t.name, "accept")
		return pubsub.ValidationAccept
	case Reject:
		t.n.metrics.message(t.name, "reject")
		return pubsub.ValidationReject
	case Ignore:
		t.n.metrics.message(t.name, "ignore")
		return pubsub.ValidationIgnore
	default:
		t.n.log.Error("p2p validator gave an unknown verdict; the message is ignored", "topic", t.name, "verdict", int(v))
		t.n.metrics.message(t.name, "ignore")
		return pubsub.ValidationIgnore
	}
}

// Publish sends data to the peers of the topic. That there are none is no error: gossip is a hint, and others may have to ask for what
// they missed. The same data again within two minutes is not sent again. Data must not be changed afterwards.
func (t *Topic) Publish(ctx context.Context, data []byte) error {
	if len(data) > t.maxBytes {
		return fmt.Errorf("p2p: publish %d bytes on %s, which takes %d: %w", len(data), t.name, t.maxBytes, ErrTooLarge)
	}
	if err := t.topic.Publish(ctx, data); err != nil {
		if t.n.ctx.Err() != nil && ctx.Err() == nil {
			err = ErrClosed
		}
		return fmt.Errorf("p2p: publish on %s: %w", t.name, err)
	}
	return nil
}

func (g *gossip) joined(topic string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.topics[topic] != nil
}

// CanSubscribe and FilterIncomingSubscriptions keep what peers say about topics that are not ours out of memory.
func (g *gossip) CanSubscribe(topic string) bool { return g.joined(topic) }

// FilterIncomingSubscriptions drops subscriptions to topics that the node has not joined.
func (g *gossip) FilterIncomingSubscriptions(_ peer.ID, subs []*pb.RPC_SubOpts) ([]*pb.RPC_SubOpts, error) {
	if len(subs) > maxSubscriptions {
		return nil, pubsub.ErrTooManySubscriptions
	}
	return pubsub.FilterSubscriptions(subs, g.joined), nil
}

// scoring says what peers are held to. Scores are 0 for a newcomer and fall with offences: rejected messages (per topic, squared),
// broken gossip promises, and many peers behind one address.
func scoring(private bool) (*pubsub.PeerScoreParams, *pubsub.PeerScoreThresholds) {
	return &pubsub.PeerScoreParams{
			Topics:                      map[string]*pubsub.TopicScoreParams{},
			TopicScoreCap:               50, // good deeds must not pay for many bad ones
			AppSpecificScore:            func(peer.ID) float64 { return 0 },
			IPColocationFactorWeight:    -10,
			IPColocationFactorThreshold: 8,
			IPColocationFactorWhitelist: colocationFree(private),
			BehaviourPenaltyWeight:      -10,
			BehaviourPenaltyThreshold:   6,
			BehaviourPenaltyDecay:       pubsub.ScoreParameterDecay(10 * time.Minute),
			DecayInterval:               pubsub.DefaultDecayInterval,
			DecayToZero:                 pubsub.DefaultDecayToZero,
			RetainScore:                 30 * time.Minute, // hanging up does not wash off
		}, &pubsub.PeerScoreThresholds{
			GossipThreshold:             -100,
			PublishThreshold:            -400,
			GraylistThreshold:           graylistThreshold,
			AcceptPXThreshold:           math.MaxFloat32, // no score reaches it: peer exchange of others is not used
			OpportunisticGraftThreshold: 1,
		}
}

// With topicScoring this is eleven rejected messages: 11² · −10.
const graylistThreshold = -1000

func topicScoring() *pubsub.TopicScoreParams {
	return &pubsub.TopicScoreParams{
		SkipAtomicValidation:           true,
		TopicWeight:                    1,
		TimeInMeshQuantum:              time.Second, // the router divides by it even where time in the mesh counts nothing
		FirstMessageDeliveriesWeight:   0.5,
		FirstMessageDeliveriesDecay:    pubsub.ScoreParameterDecay(10 * time.Minute),
		FirstMessageDeliveriesCap:      50,
		InvalidMessageDeliveriesWeight: -10,
		InvalidMessageDeliveriesDecay:  pubsub.ScoreParameterDecay(time.Hour),
	}
}

// isThrottle says whether pubsub dropped a message before anyone judged it.
func isThrottle(reason string) bool {
	return reason == pubsub.RejectValidationQueueFull || reason == pubsub.RejectValidationThrottled
}

var errFlood = errors.New("a peer sent more than it may")
