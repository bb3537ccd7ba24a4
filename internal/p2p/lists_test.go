package p2p

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// answers tells whether one node gets an answer from another, dialling it if need be.
func answers(t *testing.T, from, to *Node) error {
	t.Helper()
	info, err := peer.AddrInfoFromString(to.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := from.dial(*info); err != nil {
		return err
	}
	_, err = from.Request(t.Context(), to.ID(), proto, []byte("x"), 100)
	return err
}

func setLists(t *testing.T, n *Node, l Lists) {
	t.Helper()
	if err := n.SetLists(l); err != nil {
		t.Fatal(err)
	}
}

func standing(t *testing.T, n *Node, id string) (found PeerStatus) {
	t.Helper()
	for _, s := range n.Status() {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("%s is not in %+v", id, n.Status())
	return found
}

func TestBlockedPeer(t *testing.T) {
	a := make1(t, 1, tuning{})
	b, c := make1(t, 2, tuning{}, a), make1(t, 3, tuning{}, a)
	a.HandleStream(proto, 10, 100, echo)
	setLists(t, a, Lists{Block: []string{b.ID()}})
	run(t, a, b, c)
	until(t, "who is not blocked to be served", func() bool { return answers(t, c, a) == nil })
	if err := answers(t, b, a); err == nil {
		t.Error("a blocked peer is served")
	}
	if slices.Contains(a.Peers(), b.ID()) {
		t.Error("a blocked peer is connected")
	}
	if s := standing(t, a, b.ID()); !s.Blocked || s.Connected || s.Configured {
		t.Errorf("%+v", s)
	}
	until(t, "who is served to have told its addresses", func() bool { return standing(t, a, c.ID()).Seen != 0 })
	if s := standing(t, a, c.ID()); s.Blocked || !s.Connected {
		t.Errorf("%+v", s)
	}
	setLists(t, a, Lists{})
	until(t, "who is not blocked any more to be served", func() bool { return answers(t, b, a) == nil })
	setLists(t, a, Lists{Block: []string{b.ID()}})
	until(t, "the blocked peer to be hung up on", func() bool { return !slices.Contains(a.Peers(), b.ID()) })
	// a block is stronger than the configuration
	setLists(t, c, Lists{Block: []string{a.ID()}})
	until(t, "the configured peer to be gone", func() bool { return len(c.Peers()) == 0 })
	if err := answers(t, c, a); err == nil {
		t.Error("a blocked peer is dialled")
	}
}

// The lists change while a connection is being made: behind the gate, and before it stands, so that whoever changes them does not see it.
func TestBlockedOnTheWay(t *testing.T) {
	a := make1(t, 1, tuning{})
	b := make1(t, 2, tuning{}, a)
	run(t, a, b)
	until(t, "the peer is there", func() bool { return a.connected(b.host.ID()) })
	conn := a.host.Network().ConnsToPeer(b.host.ID())[0]
	parsed, err := parseLists(Lists{Block: []string{b.ID()}}, a.host.ID())
	if err != nil {
		t.Fatal(err)
	}
	a.gate.lists.Store(parsed)
	a.arrived(nil, conn)
	until(t, "the blocked peer to be hung up on", conn.IsClosed)
}

func TestAllowedPeersOnly(t *testing.T) {
	d := make1(t, 4, tuning{})
	a := make1(t, 1, tuning{}, d)
	b, c := make1(t, 2, tuning{}, a), make1(t, 3, tuning{}, a)
	a.HandleStream(proto, 10, 100, echo)
	d.HandleStream(proto, 10, 100, echo)
	setLists(t, a, Lists{Allow: []string{c.ID()}})
	run(t, d, a, b, c)
	until(t, "the allowed peer to be served", func() bool { return answers(t, c, a) == nil })
	until(t, "the configured peer to be there", func() bool { return answers(t, a, d) == nil })
	if err := answers(t, b, a); err == nil {
		t.Error("a peer is served that is not on the allow list")
	}
	if s := standing(t, a, c.ID()); !s.Allowed || s.Blocked {
		t.Errorf("%+v", s)
	}
}

// The address book finds allowed peers again; it makes nobody be dialled.
func TestAddressBook(t *testing.T) {
	b := make1(t, 2, tuning{})
	o := Options{Key: seededKey(1), Log: quiet(), AllowPrivate: true, Peers: b.Addrs()}
	var mu sync.Mutex
	var kept []KnownPeer
	o.Keep = func(book []KnownPeer) { mu.Lock(); defer mu.Unlock(); kept = book }
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, b, a)
	until(t, "the peer to be kept", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(kept) == 1 && kept[0].ID == b.ID() && len(kept[0].Addrs) > 0 && kept[0].Seen > 0
	})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	o.Peers, o.Known, o.Lists.Allow = nil, kept, []string{b.ID()}
	again, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, again)
	until(t, "the allowed peer to be found again", func() bool { return slices.Contains(again.Peers(), b.ID()) })
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	o.Lists = Lists{}
	third, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, third)
	if err := answers(t, third, b); err == nil {
		t.Error("a peer is dialled that is only known")
	}
	setLists(t, third, Lists{Allow: []string{b.ID()}}) // while it runs
	until(t, "the allowed peer to be dialled", func() bool { return slices.Contains(third.Peers(), b.ID()) })
}

func TestBookIsBounded(t *testing.T) {
	book := newBook(nil, false, nil)
	addr := func(s string) multiaddr {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	many := []multiaddr{addr("/ip4/10.0.0.1/tcp/1"), addr("/ip4/127.0.0.1/tcp/1"), addr("/ip4/8.8.8.8/tcp/1/ws"), addr("/dns4/a.example/tcp/1")}
	for i := range 20 {
		many = append(many, addr(fmt.Sprintf("/ip4/8.8.8.8/tcp/%d", i+1)))
	}
	first := make1(t, 200, tuning{}).host.ID()
	book.met(first, many)
	for i := range maxKnown {
		book.met(peer.ID(fmt.Sprintf("peer %d", i)), nil)
	}
	list := book.list()
	if len(list) != maxKnown || len(book.of(first).addrs) != 0 {
		t.Errorf("%d peers, the oldest is %v", len(list), book.of(first))
	}
	book = newBook(nil, false, nil)
	book.met(first, many)
	book.met(first, nil) // it says nothing now: what is known stays
	if k := book.of(first); len(k.addrs) != maxKnownAddrs || strings.Contains(fmt.Sprint(k.addrs), "10.0.0.1") || k.addrs[0].String() != "/ip4/8.8.8.8/tcp/1" {
		t.Errorf("%v", k.addrs)
	}
	read := newBook(append(book.list(), KnownPeer{ID: "nonsense"}), false, nil)
	if fmt.Sprint(read.list()) != fmt.Sprint(book.list()) {
		t.Errorf("%v, read as %v", book.list(), read.list())
	}
}

func TestBadLists(t *testing.T) {
	n := make1(t, 1, tuning{})
	for want, l := range map[string]Lists{
		`allow "nonsense"`:     {Allow: []string{"nonsense"}},
		`block ""`:             {Block: []string{""}},
		"this is the node":     {Block: []string{n.ID()}},
		`block "/ip4/1.2.3.4/`: {Block: []string{"/ip4/1.2.3.4/tcp/1/p2p/" + n.ID()}},
	} {
		if err := n.SetLists(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if m, err := New(Options{Key: seededKey(1), Log: quiet(), Lists: l}); err == nil || !strings.Contains(err.Error(), want) {
			_ = m.Close()
			t.Errorf("%s: %v", want, err)
		}
	}
}

func FuzzBook(f *testing.F) {
	f.Add("12D3KooWNvSZnPi3RrhrTwEY4LuuBeB6K6facKUCJcyWG1aoDd2p", "/ip4/8.8.8.8/tcp/1")
	f.Add("", "/dns4/a.example/tcp/1")
	f.Add("x", "/p2p/12D3KooWNvSZnPi3RrhrTwEY4LuuBeB6K6facKUCJcyWG1aoDd2p")
	f.Fuzz(func(t *testing.T, id, addr string) {
		b := newBook([]KnownPeer{{ID: id, Addrs: []string{addr, addr}}}, false, nil)
		list := b.list()
		again := newBook(list, false, nil).list()
		if len(list) > 1 || fmt.Sprint(list) != fmt.Sprint(again) || len(list) == 1 && len(list[0].Addrs) > 1 {
			t.Errorf("%q %q: %v, again %v", id, addr, list, again)
		}
		if _, err := parseLists(Lists{Block: []string{id}}, peer.ID(bytes.Repeat([]byte("s"), 4))); err == nil && len(list) == 0 {
			t.Errorf("%q can be blocked and not be known", id)
		}
	})
}

// Whoever comes and goes in a flood does not make the book be written each time; what it says in the end is.
func TestBookIsWrittenNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		written := []int{} // how many peers, each time
		book := newBook(nil, false, func(list []KnownPeer) { mu.Lock(); defer mu.Unlock(); written = append(written, len(list)) })
		want := func(n ...int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(written, n) {
				t.Errorf("written with %v peers, not %v", written, n)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { book.run(ctx); close(done) }()
		meet := func(from, to int) {
			for i := from; i < to; i++ {
				book.met(peer.ID(fmt.Sprintf("peer %d", i)), nil)
				synctest.Wait()
			}
		}
		meet(0, 100)
		want(1)
		time.Sleep(bookEvery)
		synctest.Wait()
		want(1, 100)
		meet(100, 120)
		cancel()
		<-done
		want(1, 100, 120)
	})
}
