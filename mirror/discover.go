package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/keys"
)

const (
	maxDiscovery = 256 << 10
	apiType      = "application/json"
)

// discover confirms that the origin is an ADP host, and where its API is.
func (h *host) discover(ctx context.Context) error {
	resp, err := h.get(ctx, h.origin+"/.well-known/agent-discourse", maxDiscovery, apiType)
	if err != nil {
		var s *statusError
		if errors.As(err, &s) {
			s.discovery = true
		}
		return err
	}
	v, err := adp.Scan(resp.Body)
	if err != nil {
		return fmt.Errorf("the discovery document: %w", err)
	}
	if !v.Get("protocol").Is(adp.Protocol) {
		return fmt.Errorf("the discovery document is not of %s", adp.Protocol)
	}
	if err := h.heedHost(v); err != nil {
		return err
	}
	api := h.origin + "/v1"
	if e := v.Get("endpoints").Get("api"); e.Exists() {
		u, err := h.m.o.Fetch.CheckURL(e.Text())
		if err != nil {
			return fmt.Errorf("endpoints.api of the discovery document: %w", err)
		}
		if u.Scheme+"://"+u.Host != h.origin || u.RawQuery != "" {
			return fmt.Errorf("endpoints.api of the discovery document is at %s://%s: mirror that origin instead", u.Scheme, u.Host)
		}
		api = strings.TrimRight(u.String(), "/")
	}
	if api == h.api() {
		return nil
	}
	if err := h.update(func(row *hostRow) { row.API = api }); err != nil {
		return local(err)
	}
	return nil
}

// keysRetry is how long a did:web document waits that cannot be read.
const keysRetry = 10 * time.Minute

// readKeys reads the did:web document. A plain ADP host has none, and what stands in its
// place, or that nothing comes, says nothing about its rooms: the reason is kept, and
// what is known of its keys stays as it is.
func (h *host) readKeys(ctx context.Context, now int64) {
	h.keysDue, h.keysNote = now+time.Hour.Milliseconds(), ""
	if h.m.o.Bindings == nil {
		return
	}
	resp, err := h.get(ctx, h.origin+"/.well-known/did.json", keys.MaxDocument, "")
	var s *statusError
	switch {
	case errors.As(err, &s):
		if s.status != http.StatusNotFound && s.status != http.StatusGone {
			h.keysDue = now + time.Minute.Milliseconds()
		}
		return
	case err != nil:
		h.keysDue, h.keysNote = now+keysRetry.Milliseconds(), fmt.Sprintf("its did:web document cannot be read: %v", err)
		return
	}
	state, err := h.m.o.Bindings.Observe(h.origin, resp.Body, now)
	if err != nil {
		h.keysNote = fmt.Sprintf("its did:web document is not usable: %v", err)
		return
	}
	if state != keys.BindingSame {
		h.m.log.Info("the keys of a host", "origin", h.origin, "binding", state)
	}
	if state == keys.BindingNew || state == keys.BindingVouched {
		h.m.o.Bound(h.origin)
	}
}
