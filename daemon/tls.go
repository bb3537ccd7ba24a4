package daemon

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// certificate serves a certificate from its files, and reads them again when
// they change: a renewal needs no restart. A renewal that cannot be read leaves
// the old one in place.
type certificate struct {
	certFile, keyFile string
	failed            func(error)

	mu      sync.Mutex
	cert    *tls.Certificate
	changed [2]time.Time
	checked time.Time
}

// certificateCheck is how often the files are looked at, at most.
const certificateCheck = 10 * time.Second

func loadCertificate(certFile, keyFile string, failed func(error)) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, failed: failed}
	if err := c.read(); err != nil {
		return nil, fmt.Errorf("tls_cert and tls_key: %w", err)
	}
	return c, nil
}

func (c *certificate) times() (t [2]time.Time, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return t, err
		}
		t[i] = info.ModTime()
	}
	return t, nil
}

func (c *certificate) read() error {
	t, err := c.times()
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.cert, c.changed = &pair, t
	return nil
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) > certificateCheck {
		c.checked = time.Now()
		if t, err := c.times(); err != nil || t != c.changed {
			if err == nil {
				err = c.read()
			}
			if err != nil {
				c.failed(err)
			}
		}
	}
	return c.cert, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}}
}
