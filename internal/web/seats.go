package web

import (
	"net/http"
	"net/netip"
	"sync"

	"github.com/witan-adp/witan/adp"
)

// Seats bound the requests of one client address that last: open streams and long
// polls. An IPv6 client is its /64, as for the request rate.
type Seats struct {
	most int

	mu    sync.Mutex
	taken map[netip.Addr]int
}

// StreamsPerAddress is how many seats an address usually has.
const StreamsPerAddress = 256

// NewSeats allows each address so many at a time.
func NewSeats(most int) *Seats { return &Seats{most: most, taken: map[netip.Addr]int{}} }

// Take gives the client of a request a seat until leave is called. Its error is
// rate_limited.
func (s *Seats) Take(r *http.Request) (leave func(), err error) {
	addr := bucketKey(ClientAddr(r))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[addr] >= s.most {
		return nil, adp.Errorf(adp.RateLimited, "Your address has %d streams and long polls open here; close some of them first.", s.most).
			With("retry_after", 10).With("max_streams", s.most)
	}
	s.taken[addr]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.taken[addr]--; s.taken[addr] == 0 {
			delete(s.taken, addr)
		}
	}), nil
}
