package p2p

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"
)

const (
	servedPerPeer = 4
	servedInAll   = 64
	// Fewer than a peer serves: a request that we gave up keeps its place there until its handler ends.
	sentPerPeer = 2
)

// errHandler marks, for the metrics, a request that was answered with the handler's error.
var errHandler = errors.New("the handler refused")

// RemoteError is an error that the other side answered. The text is the other side's: printable, at most 512 bytes, not to be trusted.
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return "the peer answered with an error: " + e.Text }

// streams counts the requests at work.
type streams struct {
	mu     sync.Mutex // no other lock is taken under it
	served map[peer.ID]int
	total  int
	sent   map[peer.ID]*turn
}

// turn lets a few requests to one peer through at a time.
type turn struct {
	slots chan struct{}
	users int
}

func newStreams() *streams { return &streams{served: map[peer.ID]int{}, sent: map[peer.ID]*turn{}} }

func (s *streams) enter(p peer.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= servedInAll || s.served[p] >= servedPerPeer {
		return false
	}
	s.total++
	s.served[p]++
	return true
}

func (s *streams) leave(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.served[p]--; s.served[p] == 0 {
		delete(s.served, p)
	}
}

// await waits for a turn to send to p; the caller calls done when it has the answer.
func (s *streams) await(ctx context.Context, p peer.ID) (done func(), err error) {
	s.mu.Lock()
	t := s.sent[p]
	if t == nil {
		t = &turn{slots: make(chan struct{}, sentPerPeer)}
		s.sent[p] = t
	}
	t.users++
	s.mu.Unlock()
	forget := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(s.sent, p)
		}
	}
	select {
	case t.slots <- struct{}{}:
		return func() { <-t.slots; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}

// HandleStream serves a protocol: one request of at most maxRequest bytes, one response of at most maxResponse bytes. Register before
// Run. At most 4 requests of one peer and 64 in all, over all protocols, are served at a time; above that the peer gets ErrBusy.
//
// handle runs in its own goroutine and must end with its context, which ends after 20 s and with the node. It must not keep request.
// The text of its error goes to the peer (cut to 512 bytes), so it must say nothing that is not public.
func (n *Node) HandleStream(proto string, maxRequest, maxResponse int, handle func(ctx context.Context, from string, request []byte) ([]byte, error)) {
	if int64(maxResponse) > math.MaxUint32 {
		maxResponse = math.MaxInt32 // what a frame can say
	}
	n.host.SetStreamHandler(protocol.ID(proto), func(st network.Stream) {
		if !n.begin() {
			_ = st.ResetWithError(network.StreamShutdown)
			return
		}
		from := st.Conn().RemotePeer()
		if !n.streams.enter(from) {
			n.tasks.Done()
			n.metrics.request(proto, "served", ErrBusy)
			_ = st.ResetWithError(network.StreamRateLimited)
			return
		}
		err := n.serve(st, maxRequest, maxResponse, sync.OnceFunc(func() { n.streams.leave(from) }), handle)
		n.metrics.request(proto, "served", err)
		if err != nil {
			n.log.Debug("p2p request failed", "protocol", proto, "peer", from, "err", err)
		}
	})
}

// serve answers one stream. It calls leave when the request gives its place back: before the peer can have read the whole answer, so
// that its next request finds the place free. A handler that ignores its context keeps the place until it returns, although the peer
// has its answer by then.
func (n *Node) serve(st network.Stream, maxRequest, maxResponse int, leave func(), handle func(context.Context, string, []byte) ([]byte, error)) error {
	over := func() { leave(); n.tasks.Done() }
	defer context.AfterFunc(n.ctx, func() { _ = st.ResetWithError(network.StreamShutdown) })()
	if err := st.SetReadDeadline(time.Now().Add(n.tune.readTimeout)); err != nil {
		defer over()
		_ = st.Reset()
		return fmt.Errorf("set a deadline: %w", err)
	}
	request, err := readFrame(st, maxRequest)
	switch {
	case errors.Is(err, ErrTooLarge):
		defer over()
		return errors.Join(err, n.respond(st, statusError, []byte(err.Error()), leave))
	case err != nil:
		defer over()
		_ = st.ResetWithError(network.StreamProtocolViolation)
		return err
	}

	type answer struct {
		data []byte
		err  error
	}
	ctx, cancel := context.WithTimeout(n.ctx, n.tune.handlerTimeout)
	defer cancel()
	answered := make(chan answer, 1)
	written := make(chan struct{})
	go func() {
		defer over()
		data, err := handle(ctx, st.Conn().RemotePeer().String(), request)
		answered <- answer{data, err}
		<-written // so that slow readers are counted too
	}()
	defer close(written)
	free := leave
	var a answer
	select {
	case a = <-answered:
	case <-ctx.Done():
		free = nil // the handler is still at work
		a.err = fmt.Errorf("no answer within %v: %w", n.tune.handlerTimeout, context.DeadlineExceeded)
		if n.ctx.Err() != nil {
			return ErrClosed // the stream is reset
		}
	}
	switch {
	case a.err != nil:
		return errors.Join(errHandler, a.err, n.respond(st, statusError, []byte(plainText(a.err.Error())), free))
	case len(a.data) > maxResponse:
		n.log.Error("p2p handler made a response that is too large", "protocol", st.Protocol(), "bytes", len(a.data), "limit", maxResponse)
		return errors.Join(ErrTooLarge, n.respond(st, statusError, []byte("the answer is too large"), free))
	}
	return n.respond(st, statusOK, a.data, free)
}

// respond writes an answer, and calls leave before its last byte, unless that is nil.
func (n *Node) respond(st network.Stream, status byte, data []byte, leave func()) error {
	err := st.SetWriteDeadline(time.Now().Add(n.tune.readTimeout))
	if err == nil {
		err = writeFrame(st, []byte{status}, data, leave)
	}
	if err == nil {
		err = st.Close()
	}
	if err != nil {
		_ = st.Reset()
		return fmt.Errorf("write the response: %w", err)
	}
	return nil
}

// Request asks a connected peer and waits for its answer of at most maxResponse bytes, until ctx ends or 45 s are over, two requests
// to one peer at a time. It fails with ErrNotConnected, ErrUnsupported, ErrBusy, ErrTooLarge or *RemoteError where these apply.
func (n *Node) Request(ctx context.Context, to string, proto string, request []byte, maxResponse int) ([]byte, error) {
	id, err := peer.Decode(to)
	if err != nil {
		return nil, fmt.Errorf("p2p: %q is no peer ID: %w", to, err)
	}
	data, err := n.request(ctx, id, protocol.ID(proto), request, maxResponse)
	n.metrics.request(proto, "sent", err)
	if err != nil {
		return nil, fmt.Errorf("p2p: request %s from %s: %w", proto, id, err)
	}
	return data, nil
}

func (n *Node) request(ctx context.Context, id peer.ID, proto protocol.ID, request []byte, maxResponse int) ([]byte, error) {
	if int64(len(request)) > math.MaxUint32 {
		return nil, fmt.Errorf("a request of %d bytes: %w", len(request), ErrTooLarge)
	}
	ctx, cancel := context.WithTimeout(ctx, n.tune.requestTimeout)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	if n.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if !n.connected(id) {
		return nil, ErrNotConnected
	}
	done, err := n.streams.await(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	st, err := n.host.NewStream(network.WithNoDial(ctx, "requests use the connections that stand"), id, proto)
	if err != nil {
		return nil, n.explain(ctx, id, err)
	}
	// The stream knows nothing of contexts: its end resets it, which wakes reads and writes.
	defer context.AfterFunc(ctx, func() { _ = st.Reset() })()
	data, err := exchange(st, request, maxResponse)
	if err != nil {
		_ = st.Reset()
		return nil, n.explain(ctx, id, err)
	}
	_ = st.Close() // the answer is complete
	return data, nil
}

// exchange writes and reads at the same time: a server may answer before it has read all of a request that is too large for it, and
// reads no further then.
func exchange(st network.Stream, request []byte, maxResponse int) ([]byte, error) {
	wrote := make(chan error, 1)
	go func() {
		err := writeFrame(st, nil, request, nil)
		if err == nil {
			err = st.CloseWrite()
		}
		wrote <- err
	}()
	data, err := readResponse(st, maxResponse)
	var werr error
	select {
	case werr = <-wrote:
	default:
		_ = st.Reset() // nobody waits for the rest; this ends the write
		<-wrote
	}
	var remote *RemoteError
	if err == nil || errors.As(err, &remote) || werr == nil {
		return data, err
	}
	return nil, errors.Join(err, fmt.Errorf("write the request: %w", werr))
}

// explain turns what libp2p says into the errors of this package.
func (n *Node) explain(ctx context.Context, id peer.ID, err error) error {
	var unsupported multistream.ErrNotSupported[protocol.ID]
	var reset *network.StreamError
	switch {
	case n.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &unsupported), errors.As(err, &reset) && reset.Remote && reset.ErrorCode == network.StreamProtocolNegotiationFailed:
		return ErrUnsupported
	case errors.As(err, &reset) && reset.Remote && reset.ErrorCode == network.StreamRateLimited:
		return ErrBusy
	case !n.connected(id):
		return fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	return err
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// plainText cuts a text to what a frame of statusError holds and to what can be shown in a terminal or a log.
func plainText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, s)
	for len(s) > maxErrorText {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}
