package p2p

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
)

const proto = "/test/ask/1"

// pair returns a server and a client that is connected to it. set prepares the server before it runs.
func pair(t *testing.T, tune tuning, set func(server *Node)) (server, client *Node) {
	t.Helper()
	server = make1(t, 1, tune)
	client = make1(t, 2, tuning{}, server)
	set(server)
	run(t, server, client)
	until(t, "the nodes are connected", func() bool { return client.connected(server.host.ID()) && server.connected(client.host.ID()) })
	return server, client
}

func echo(_ context.Context, from string, request []byte) ([]byte, error) {
	if string(request) == "fail" {
		return nil, errors.New("no such room\x1b[31m " + strings.Repeat("é", 600))
	}
	return append([]byte(from+" "), request...), nil
}

// free fails the test if an answered request still has its place: the next one could be told that the server is busy.
func free(t *testing.T, server *Node) {
	t.Helper()
	if !server.streams.idle() {
		t.Error("the request is answered and still has its place")
	}
}

func TestRequestAndResponse(t *testing.T) {
	server, client := pair(t, tuning{}, func(n *Node) { n.HandleStream(proto, 100, 1000, echo) })
	for _, q := range []string{"", "hello", strings.Repeat("x", 100)} {
		got, err := client.Request(t.Context(), server.ID(), proto, []byte(q), 1000)
		if err != nil || string(got) != client.ID()+" "+q {
			t.Errorf("request %q: %q, %v", q, got, err)
		}
		free(t, server)
	}

	_, err := client.Request(t.Context(), server.ID(), proto, []byte("fail"), 1000)
	var remote *RemoteError
	if !errors.As(err, &remote) || !strings.HasPrefix(remote.Text, "no such room.[31m é") || len(remote.Text) > maxErrorText {
		t.Errorf("handler's error: %v", err)
	}
	free(t, server)
	_, err = client.Request(t.Context(), server.ID(), proto, make([]byte, 101), 1000)
	if !errors.As(err, &remote) || !strings.Contains(remote.Text, "too large") {
		t.Errorf("request of 101 bytes: %v, want a remote error", err)
	}
	free(t, server)
	_, err = client.Request(t.Context(), server.ID(), proto, make([]byte, 8<<20), 1000)
	if !errors.As(err, &remote) || !strings.Contains(remote.Text, "too large") {
		t.Errorf("request of 8 MiB: %v, want a remote error", err)
	}
	if _, err = client.Request(t.Context(), server.ID(), proto, []byte("hello"), 10); !errors.Is(err, ErrTooLarge) {
		t.Errorf("response above the client's limit: %v, want ErrTooLarge", err)
	}
	if _, err = client.Request(t.Context(), server.ID(), "/test/unknown/1", nil, 10); !errors.Is(err, ErrUnsupported) {
		t.Errorf("unknown protocol: %v, want ErrUnsupported", err)
	}
	stranger := make1(t, 9, tuning{})
	if _, err = client.Request(t.Context(), stranger.ID(), proto, nil, 10); !errors.Is(err, ErrNotConnected) {
		t.Errorf("stranger: %v, want ErrNotConnected", err)
	}
	if _, err = client.Request(t.Context(), "nobody", proto, nil, 10); err == nil {
		t.Error("a peer ID that is none: no error")
	}
	until(t, "the server has forgotten all requests", func() bool { return server.streams.idle() && client.streams.idle() })
}

func TestUnsupportedThoughClaimed(t *testing.T) {
	server, client := pair(t, tuning{}, func(*Node) {})
	// The client believes that the server speaks it, so nothing is negotiated before the first bytes.
	if err := client.host.Peerstore().AddProtocols(server.host.ID(), proto); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Request(t.Context(), server.ID(), proto, []byte("x"), 10); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
}

func TestServerKeepsItsOwnResponseLimit(t *testing.T) {
	server, client := pair(t, tuning{}, func(n *Node) { n.HandleStream(proto, 100, 20, echo) })
	_, err := client.Request(t.Context(), server.ID(), proto, []byte("hello"), 1000)
	var remote *RemoteError
	if !errors.As(err, &remote) {
		t.Errorf("%v, want a remote error", err)
	}
}

func TestHandlerThatHangs(t *testing.T) {
	release := make(chan struct{})
	server, client := pair(t, tuning{handlerTimeout: 50 * time.Millisecond}, func(n *Node) {
		n.HandleStream(proto, 100, 100, func(context.Context, string, []byte) ([]byte, error) {
			<-release // ignores its context
			return nil, nil
		})
	})
	var remote *RemoteError
	for i := range servedPerPeer {
		if _, err := client.Request(t.Context(), server.ID(), proto, nil, 100); !errors.As(err, &remote) || !strings.Contains(remote.Text, "no answer within") {
			t.Fatalf("request %d: %v, want a remote error in time", i, err)
		}
	}
	// The hanging handlers keep their places.
	if _, err := client.Request(t.Context(), server.ID(), proto, nil, 100); !errors.Is(err, ErrBusy) {
		t.Errorf("with all places taken: %v, want ErrBusy", err)
	}
	close(release)
	until(t, "the places are free", server.streams.idle)
}

func TestHandlerContextEnds(t *testing.T) {
	ended := make(chan error, 1)
	server, client := pair(t, tuning{handlerTimeout: 50 * time.Millisecond}, func(n *Node) {
		n.HandleStream(proto, 100, 100, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
	})
	if _, err := client.Request(t.Context(), server.ID(), proto, nil, 100); err == nil {
		t.Error("no error")
	}
	if err := take(t, "the handler's end", ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("handler's context ended with %v", err)
	}
}

func TestPeerThatStallsIsCut(t *testing.T) {
	server, client := pair(t, tuning{readTimeout: 100 * time.Millisecond}, func(n *Node) { n.HandleStream(proto, 100, 1000, echo) })
	frame := binary.BigEndian.AppendUint32(nil, 50)
	for name, half := range map[string][]byte{"half a length": frame[:2], "half a frame": append(frame, "not fifty bytes"...)} {
		st, err := client.host.NewStream(t.Context(), server.host.ID(), proto)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Write(half); err != nil && !errors.Is(err, network.ErrReset) { // cut already
			t.Fatal(err)
		}
		got, err := readResponse(st, 1000)
		if err == nil || !errors.Is(err, network.ErrReset) {
			t.Errorf("%s: %q, %v, want a reset", name, got, err)
		}
	}
	until(t, "the server is idle", server.streams.idle)
}

func TestServerThatStallsOrLies(t *testing.T) {
	respond := func(b []byte, hang bool) func(network.Stream) {
		return func(st network.Stream) {
			_, _ = readFrame(st, 100)
			_, _ = st.Write(b)
			if !hang {
				_ = st.Close()
			}
		}
	}
	length := func(status byte, n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{status}, n) }
	for name, c := range map[string]struct {
		reply []byte
		hang  bool
		want  error
	}{
		"silence":              {nil, true, context.DeadlineExceeded},
		"half a response":      {append(length(statusOK, 50), "short"...), true, context.DeadlineExceeded},
		"cut response":         {append(length(statusOK, 50), "short"...), false, nil},
		"more than allowed":    {append(length(statusOK, 101), bytes.Repeat([]byte("x"), 101)...), false, ErrTooLarge},
		"four gigabytes":       {length(statusOK, 1<<32-1), true, ErrTooLarge},
		"error text too long":  {append(length(statusError, 513), bytes.Repeat([]byte("x"), 513)...), false, ErrTooLarge},
		"unknown status":       {length(7, 0), false, nil},
		"nothing and a hangup": {nil, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := pair(t, tuning{}, func(n *Node) { n.host.SetStreamHandler(protocol.ID(proto), respond(c.reply, c.hang)) })
			timeout := patience
			if c.want == context.DeadlineExceeded {
				timeout = 500 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			got, err := client.Request(ctx, server.ID(), proto, nil, 100)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%q, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestManyRequestsAtOnce(t *testing.T) {
	server, client := pair(t, tuning{}, func(n *Node) { n.HandleStream(proto, 100, 1000, echo) })
	errs := make(chan error, 100)
	for i := range cap(errs) {
		go func() {
			_, err := client.Request(t.Context(), server.ID(), proto, fmt.Append(nil, i), 1000)
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := take(t, "an answer", errs); err != nil {
			t.Error(err) // a client waits for its turn: none is told that the server is busy
		}
	}
}

func TestRequestLimits(t *testing.T) {
	s := newStreams()
	in := 0
	for p := 'a'; p < 'a'+26; p++ {
		for range servedPerPeer + 1 {
			if s.enter(peerNamed(p)) {
				in++
			}
		}
		if s.served[peerNamed(p)] > servedPerPeer {
			t.Fatalf("%d requests of one peer", s.served[peerNamed(p)])
		}
	}
	if in != servedInAll {
		t.Errorf("%d requests at once, want %d", in, servedInAll)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0}, 10)
	f.Add([]byte{0, 0, 0, 3, 'a', 'b', 'c', 'd'}, 3)
	f.Add([]byte{0, 0, 0, 3, 'a'}, 3)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 'a'}, 1<<31-1)
	f.Add([]byte{0, 0}, 0)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		r := bytes.NewReader(in)
		got, err := readFrame(r, limit)
		if err != nil {
			if errors.Is(err, ErrTooLarge) && r.Len() != len(in)-4 {
				t.Fatalf("read on after a length above the limit")
			}
			return
		}
		if len(got) > limit {
			t.Fatalf("%d bytes, the limit is %d", len(got), limit)
		}
		var out bytes.Buffer
		if err := writeFrame(&out, nil, got, nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), in[:len(in)-r.Len()]) {
			t.Fatalf("frame % x was read from % x", out.Bytes(), in)
		}
	})
}

func FuzzReadResponse(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 'x'})
	f.Add([]byte{1, 0, 0, 0, 3, 0xff, 0x1b, 'x'})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := readResponse(bytes.NewReader(in), 1000)
		var remote *RemoteError
		if errors.As(err, &remote) && (len(remote.Text) > maxErrorText || remote.Text != plainText(remote.Text)) {
			t.Fatalf("error text %q", remote.Text)
		}
		if len(got) > 1000 {
			t.Fatalf("%d bytes", len(got))
		}
	})
}
