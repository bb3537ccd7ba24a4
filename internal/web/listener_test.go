package web

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestConnections(t *testing.T) {
	l := Connections{All: 7, PerAddress: 2, Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}.Listen(nil).(*bounded)
	take := func(addr, want string) func() {
		t.Helper()
		leave, bound := l.take(netip.MustParseAddr(addr))
		if (leave == nil) != (want != "") || bound != want {
			t.Fatalf("%s: over %q, want %q", addr, bound, want)
		}
		return leave
	}
	first := take("203.0.113.1", "")
	take("203.0.113.1", "")
	take("203.0.113.1", "address")
	take("2001:db8:1:1::1", "")
	take("2001:db8:1:1:ffff::2", "")
	take("2001:db8:1:1::3", "address") // one /64 is one client
	first()
	first() // counts once
	take("203.0.113.1", "")
	take("203.0.113.1", "address")
	var proxied []func()
	for range 3 { // a proxy has as many as there are
		proxied = append(proxied, take("10.0.0.1", ""))
	}
	take("10.0.0.1", "all")
	take("203.0.113.2", "all")
	proxied[0]()
	take("203.0.113.2", "")()
	if l.all != 6 || len(l.of) != 2 {
		t.Errorf("%d connections of %v", l.all, l.of)
	}
}

// A server whose clients only connect goes on for others.
func TestConnectionsOfAServer(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	l := Connections{All: 100, PerAddress: 3, Registerer: reg}.Listen(inner)
	s := NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { WriteRaw(w, 200, []byte("{}")) }), quiet())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	var idle []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	more, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	if err := more.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := more.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a fourth connection is open: %v", err)
	}
	if families, err := reg.Gather(); err != nil || len(families) != 1 || families[0].GetMetric()[0].GetCounter().GetValue() != 1 ||
		families[0].GetMetric()[0].GetLabel()[0].GetValue() != "address" {
		t.Errorf("counted: %v %v", families, err)
	}
	for _, c := range idle {
		c.Close()
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + inner.Addr().String())
		if err == nil {
			resp.Body.Close()
			break
		}
		if time.Now().After(deadline) { // the closed ones have to be noticed
			t.Fatal(err)
		}
	}
	s.Close()
	if err := <-ended; err != http.ErrServerClosed {
		t.Error(err)
	}
}
