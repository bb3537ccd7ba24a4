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

// readKeys reads the did:web document. A plain ADP host has none.
func (h *host) readKeys(ctx context.Context, now int64) error {
	h.keysDue = now + time.Hour.Milliseconds()
	if h.m.o.Bindings == nil {
		return nil
	}
	resp, err := h.get(ctx, h.origin+"/.well-known/did.json", keys.MaxDocument, "")
	var s *statusError
	switch {
	case errors.As(err, &s):
		if s.status != http.StatusNotFound && s.status != http.StatusGone {
			h.keysDue = now + time.Minute.Milliseconds()
		}
		return nil
	case err != nil:
		return err
	}
	state, err := h.m.o.Bindings.Observe(h.origin, resp.Body, now)
	if err != nil {
		h.m.log.Warn("the did:web document of a host is not usable", "origin", h.origin, "error", err)
		return nil
	}
	if state != keys.BindingSame {
		h.m.log.Info("the keys of a host", "origin", h.origin, "binding", state)
	}
	if state == keys.BindingNew || state == keys.BindingVouched {
		h.m.o.Bound(h.origin)
	}
	return nil
}
