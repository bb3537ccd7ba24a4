package daemon

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/config"
)

// Who only connects holds no more connections than the settings say, and others, or the
// same client once it lets go, are answered.
func TestIdleConnectionsAreBounded(t *testing.T) {
	d := start(t, setup{change: func(c *config.Config) { c.P2P.Enabled, c.Limits.ConnectionsPerAddress = false, 2 }})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", authority(d.origin))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, second, third := dial(), dial(), dial()
	defer second.Close()
	defer third.Close()
	if err := third.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := third.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a third connection is open: %v", err)
	}
	first.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	until(t, "an answer in the place of the first", func() bool {
		resp, err := client.Get(d.origin + "/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	until(t, "the refusal to be counted", func() bool {
		resp, err := client.Get(d.origin + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var b strings.Builder
		_, err = io.Copy(&b, resp.Body)
		return err == nil && strings.Contains(b.String(), `witan_http_connections_refused_total{bound="address"}`)
	})
}
