package feed

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
)

// Who cannot be served within ten seconds is told to come back.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Feed{busy: make(chan struct{}, atOnce)}
		for range atOnce {
			if err := f.take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got := make(chan error)
		go func() { got <- f.take(t.Context()) }()
		if err := <-got; err == nil {
			t.Error("one too many was let in")
		}
		go func() { got <- f.take(t.Context()) }()
		synctest.Wait()
		<-f.busy
		if err := <-got; err != nil {
			t.Errorf("its turn had come: %v", err)
		}
	})
}

func TestNobodyHoldsAPlace(t *testing.T) {
	w := newWorld(t)
	for range 3 * atOnce {
		if rec := w.get("/v1/feed"); rec.Code != http.StatusOK || !json.Valid(rec.Body.Bytes()) {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
	}
}
