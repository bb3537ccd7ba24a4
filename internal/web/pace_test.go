package web

import (
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/witan-adp/witan/adp"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPace(1, 3)
		r := httptest.NewRequest("GET", "/", nil)
		for i := range 3 {
			if err := p.Take(r); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		var e *adp.Error
		if err := p.Take(r); !errors.As(err, &e) || e.Code != adp.RateLimited || e.Data["retry_after"] != int64(1) {
			t.Fatalf("the fourth: %v", err)
		}
		time.Sleep(time.Second) // of the bubble
		if err := p.Take(r); err != nil {
			t.Fatalf("a second later: %v", err)
		}
	})
}
