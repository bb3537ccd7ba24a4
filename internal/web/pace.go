package web

import (
	"math"
	"net/http"
	"time"

	"github.com/witan-adp/witan/adp"
	"golang.org/x/time/rate"
)

// Pace bounds how often one client address may ask for what is dear. An IPv6 client is its /64, as for the rate of all requests.
type Pace struct{ buckets *buckets }

// NewPace allows each address limit requests a second, and burst at once.
func NewPace(limit rate.Limit, burst int) *Pace {
	return &Pace{newBuckets(limit, burst, clientsTracked)}
}

// Take counts one request. Its error is rate_limited.
func (p *Pace) Take(r *http.Request) error {
	wait := p.buckets.take(ClientAddr(r), time.Now())
	if wait <= 0 {
		return nil
	}
	seconds := int64(math.Ceil(wait.Seconds()))
	return adp.Errorf(adp.RateLimited, "Your address asks for this too often; wait %d s.", seconds).With("retry_after", seconds)
}
