package daemon

import (
	"errors"
	"fmt"
	"net"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/store"
)

// resolveOrigin is the configured origin, or the one that the listen address
// amounts to.
func resolveOrigin(cfg config.Config, addr net.Addr) (string, error) {
	if cfg.Origin != "" {
		origin, err := fetch.Origin(cfg.Origin, true)
		if err != nil {
			return "", fmt.Errorf("origin %q: %w", cfg.Origin, err)
		}
		return origin, nil
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return "", errors.New("the origin cannot be told from the listen address: set it with --origin https://your.host.name")
	}
	if tcp.IP.IsUnspecified() {
		return "", fmt.Errorf("listening on all addresses (%s) does not say under which name others reach this daemon: set it with --origin https://your.host.name", addr)
	}
	scheme := "http"
	if cfg.TLSCert != "" {
		scheme = "https"
	}
	return fetch.Origin(scheme+"://"+tcp.String(), true)
}

// What a store remembers of its daemon.
const (
	metaOrigin = "origin"
	metaAgent  = "agent"
)

// fixOrigin keeps the origin of the first start: it stands in every URL and
// signature that this daemon has given out.
func fixOrigin(st *store.Store, origin, agent string) error {
	for _, m := range []struct{ name, value, refusal string }{
		{metaOrigin, origin, "this data folder belongs to the origin %s and cannot serve %s: the origin is part of every room URL and statement that was given out. Start with --origin %[1]s, or use another --data folder for the new origin"},
		{metaAgent, agent, "this data folder was made with the key of %s, and the key file now holds %s: put the old key file back, or use another --data folder"},
	} {
		old, ok, err := st.Get(store.Meta(m.name))
		if err != nil {
			return err
		}
		if ok {
			if string(old) != m.value {
				return fmt.Errorf(m.refusal, old, m.value)
			}
			continue
		}
		var b store.Batch
		b.Expect(store.Meta(m.name), nil)
		b.Put(store.Meta(m.name), []byte(m.value))
		if err := st.Commit(&b); err != nil {
			return fmt.Errorf("remember the %s: %w", m.name, err)
		}
	}
	return nil
}
