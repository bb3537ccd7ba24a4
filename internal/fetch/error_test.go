package fetch

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// What could not be fetched is told to strangers: where we asked, and neither from where nor whose resolver we use.
func TestErrorsNameNoAddressOfOurs(t *testing.T) {
	ours, theirs := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 41234}, &net.TCPAddr{IP: net.IPv4(93, 184, 216, 34), Port: 443}
	reset := &net.OpError{Op: "read", Net: "tcp", Source: ours, Addr: theirs, Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	lookup := &net.DNSError{Err: "no such host", Name: "rooms.example", Server: "10.0.0.5:53", IsNotFound: true}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a read":              {reset, "read 93.184.216.34:443: read: connection reset by peer"},
		"a lookup":            {lookup, "no such host"},
		"a lookup for a dial": {&net.OpError{Op: "dial", Net: "tcp", Source: ours, Err: lookup}, "dial: no such host"},
		"two dials":           {errors.Join(discreet{reset}, discreet{reset}), "read 93.184.216.34:443"},
		"words":               {errors.New("the body is cut"), "the body is cut"},
	} {
		got := classify(t.Context(), "https://rooms.example", c.err)
		if text := got.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "10.0.0.5") {
			t.Errorf("%s: %s", name, text)
		}
		if !errors.Is(got, c.err) {
			t.Errorf("%s: it is another error now", name)
		}
	}
}
