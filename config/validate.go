package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/multiformats/go-multiaddr"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/cosignature"
)

// problems collects what is wrong; each entry starts with the key that it is about.
type problems []error

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

// Validate reports all problems at once, each with its key and what to write instead, or nil. It looks at the values only:
// whether a file exists or a name resolves shows when the daemon starts.
func (c *Config) Validate() error {
	var p problems
	c.validateTop(&p)
	c.P2P.validate(&p)
	c.Host.validate(&p)
	c.Limits.validate(&p)
	c.Mirror.validate(&p)
	if c.Index.Messages && c.Index.MessagesMax < 1 {
		p.add("index.messages_max", "%d leaves nothing to search; give 1 or more, or set index.messages to false", c.Index.MessagesMax)
	}
	c.Witness.validate(&p)
	c.Log.validate(&p)
	c.Webhook.validate(&p)
	return errors.Join(p...)
}

func (c *Config) validateTop(p *problems) {
	if c.Data == "" {
		p.add("data", "name a folder")
	}
	if _, port, err := net.SplitHostPort(c.Listen); err != nil {
		p.add("listen", "%q is not host:port, such as \"127.0.0.1:8080\"", c.Listen)
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		p.add("listen", "%q has no port from 0 to 65535", c.Listen)
	}
	if c.Origin != "" {
		if why := originProblem(c.Origin); why != "" {
			p.add("origin", "%s", why)
		}
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		p.add("tls_cert, tls_key", "give both or neither")
	}
	for _, n := range c.TrustedProxies {
		if !n.IsValid() {
			p.add("trusted_proxies", "holds a network that is not valid")
		} else if n != n.Masked() {
			p.add("trusted_proxies", "%s has bits set behind its length; write %s", n, n.Masked())
		}
	}
	oneOf(p, "log_level", c.LogLevel, "debug", "info", "warn", "error")
	oneOf(p, "log_format", c.LogFormat, "text", "json")
	atLeast(p, "min_free_disk", c.MinFreeDisk, 0)
}

func (c *P2P) validate(p *problems) {
	for _, s := range c.Listen {
		if _, err := multiaddr.NewMultiaddr(s); err != nil {
			p.add("p2p.listen", "%q is not a multiaddr, such as \"/ip4/127.0.0.1/tcp/4011\": %v", s, err)
		}
	}
	for _, s := range c.Peers {
		if a, err := multiaddr.NewMultiaddr(s); err != nil {
			p.add("p2p.peers", "%q is not a multiaddr: %v", s, err)
		} else if _, err := a.ValueForProtocol(multiaddr.P_P2P); err != nil {
			p.add("p2p.peers", "%q does not end in /p2p/<peer id>", s)
		}
	}
	for name, ids := range map[string][]string{"p2p.allow": c.Allow, "p2p.block": c.Block} {
		for _, s := range ids {
			if a, err := multiaddr.NewMultiaddr("/p2p/" + s); err != nil || len(a.Protocols()) != 1 {
				p.add(name, "%q is not a peer ID, which is what stands behind /p2p/ in an address", s)
			}
		}
	}
	if c.MaxPeers < 1 || c.MaxPeers > 10_000 {
		p.add("p2p.max_peers", "must be from 1 to 10000")
	}
}

func (c *Host) validate(p *problems) {
	oneOf(p, "host.room_creation", c.RoomCreation, CreationOpen, CreationAllowList, CreationClosed)
	agents(p, "host.allowed_creators", c.AllowedCreators)
	agents(p, "host.banned_agents", c.BannedAgents)
	atLeast(p, "host.rooms_per_creator", c.RoomsPerCreator, 0)
	atLeast(p, "host.rooms_total", c.RoomsTotal, 0)
	atLeast(p, "host.bytes_per_room", c.BytesPerRoom, 0)
	atLeast(p, "host.bytes_per_creator", c.BytesPerCreator, 0)
	atLeast(p, "host.bytes_total", c.BytesTotal, 0)
	positive(p, "host.join_request_ttl", c.JoinRequestTTL)
	positive(p, "host.agent_status_ttl", c.AgentStatusTTL)
	oneOf(p, "host.withheld", c.Withheld, WithheldSeal, WithheldErase)
}

func (c *Limits) validate(p *problems) {
	atLeast(p, "limits.message_per_minute", c.MessagePerMinute, 1)
	atLeast(p, "limits.signal_per_minute", c.SignalPerMinute, 1)
	atLeast(p, "limits.control_per_minute", c.ControlPerMinute, 1)
	atLeast(p, "limits.payload_bytes", c.PayloadBytes, 1)
	ordered(p, "limits.payload_bytes", c.PayloadBytes, "limits.payload_bytes_ceiling", c.PayloadBytesCeiling)
	ordered(p, "limits.payload_bytes_ceiling", c.PayloadBytesCeiling, "limits.body_bytes", c.BodyBytes)
	atLeast(p, "limits.mentions", c.Mentions, 0)
	if c.Mentions > 32 {
		p.add("limits.mentions", "%d is over 32, the most that the protocol allows", c.Mentions)
	}
	atLeast(p, "limits.schema_bytes", c.SchemaBytes, 1)
	atLeast(p, "limits.types_per_room", c.TypesPerRoom, 1)
	atLeast(p, "limits.room_min_ms", c.RoomMinMs, 1)
	ordered(p, "limits.room_min_ms", c.RoomMinMs, "limits.room_max_ms", c.RoomMaxMs)
	atLeast(p, "limits.speakers_per_room", c.SpeakersPerRoom, 1)
	atLeast(p, "limits.observers_per_room", c.ObserversPerRoom, 0)
	rate(p, "limits.requests_per_second", c.RequestsPerSecond)
	atLeast(p, "limits.requests_burst", c.RequestsBurst, 1)
	atLeast(p, "limits.streams_per_address", c.StreamsPerAddress, 1)
	atLeast(p, "limits.connections", c.Connections, 1)
	atLeast(p, "limits.connections_per_address", c.ConnectionsPerAddress, 1)
}

func (c *Mirror) validate(p *problems) {
	positive(p, "mirror.poll_min", c.PollMin)
	ordered(p, "mirror.poll_min", c.PollMin, "mirror.poll_max", c.PollMax)
	atLeast(p, "mirror.concurrency_per_host", c.ConcurrencyPerHost, 1)
	rate(p, "mirror.requests_per_second", c.RequestsPerSecond)
	positive(p, "mirror.backoff_min", c.BackoffMin)
	ordered(p, "mirror.backoff_min", c.BackoffMin, "mirror.backoff_max", c.BackoffMax)
	atLeast(p, "mirror.rooms_per_host", c.RoomsPerHost, 1)
	atLeast(p, "mirror.records_per_room", c.RecordsPerRoom, 1)
	atLeast(p, "mirror.bytes_per_host", c.BytesPerHost, 0)
	oneOf(p, "mirror.withheld", c.Withheld, WithheldSeal, WithheldErase)
	c.Retention.validate(p, "mirror.retention")
	seen := map[string]bool{}
	for i, h := range c.Hosts {
		key := fmt.Sprintf("mirror.host %d: url", i+1)
		h.Retention.validate(p, fmt.Sprintf("mirror.host %d: retention", i+1))
		if why := originProblem(h.URL); why != "" {
			p.add(key, "%s", why)
			continue
		}
		url := strings.ToLower(strings.TrimSuffix(h.URL, "/"))
		if seen[url] {
			p.add(key, "%s stands there twice", h.URL)
		}
		seen[url] = true
		for _, via := range h.Via {
			if why := viaProblem(via); why != "" {
				p.add(fmt.Sprintf("mirror.host %d: via", i+1), "%s", why)
			} else if strings.ToLower(strings.TrimSuffix(via, "/")) == url {
				p.add(fmt.Sprintf("mirror.host %d: via", i+1), "%s is the host itself", via)
			}
		}
	}
}

func (c *Retention) validate(p *problems, key string) {
	atLeast(p, key+".age", c.Age, 0)
	if c.Age > 0 && c.Age < minAge {
		p.add(key+".age", "%v is below %v; what a mirror lets go of within the hour it need not copy", c.Age, minAge)
	}
	atLeast(p, key+".bytes", c.Bytes, 0)
	atLeast(p, key+".count", c.Count, 0)
	atLeast(p, key+".host_bytes", c.HostBytes, 0)
	atLeast(p, key+".host_count", c.HostCount, 0)
}

// minAge is the least age of mirror.retention.
const minAge = Duration(time.Hour)

func (c *Witness) validate(p *problems) {
	seen := map[string]bool{}
	for i, t := range c.Trust {
		key := fmt.Sprintf("witness.trust %d: ", i+1)
		agents(p, key+"agent", []string{t.Agent})
		if seen[t.Agent] {
			p.add(key+"agent", "%s stands there twice; one key counts once", t.Agent)
		}
		seen[t.Agent] = true
		if t.Group == "" {
			p.add(key+"group", "name the operator group, which counts once")
		}
	}
	c.validatePolicy(p)
	logs := map[WitnessLog]bool{}
	for i, l := range c.Logs {
		key := fmt.Sprintf("witness.log %d: ", i+1)
		if l.Origin == "" || strings.ContainsAny(l.Origin, "\r\n") {
			p.add(key+"origin", "%q is not the first line of a checkpoint", l.Origin)
		}
		if _, err := cosignature.ParseVerifier(l.VerifierKey); err != nil {
			p.add(key+"vkey", "%v", err)
		} else if logs[l] {
			p.add(key+"vkey", "%s stands there twice for %s", l.VerifierKey, l.Origin)
		}
		logs[l] = true
	}
}

// maxLogWitnesses is what the readers of a checkpoint have room for.
const maxLogWitnesses = 32

func (c *Log) validate(p *problems) {
	if len(c.Witnesses) > maxLogWitnesses {
		p.add("log.witness", "%d witnesses; %d is the limit", len(c.Witnesses), maxLogWitnesses)
	}
	seen := map[string]bool{}
	for i, w := range c.Witnesses {
		key := fmt.Sprintf("log.witness %d: ", i+1)
		u, err := url.Parse(w.URL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || strings.ContainsAny(w.URL, "?#") {
			p.add(key+"url", "%q is not the prefix of a witness; write scheme://host[:port][/path], such as \"https://witness.example/prefix\"", w.URL)
		}
		v, err := cosignature.ParseVerifier(w.VerifierKey)
		switch {
		case err != nil:
			p.add(key+"vkey", "%v", err)
		case v.Kind() != cosignature.Witness:
			p.add(key+"vkey", "%s is %v; ask the witness for its own, which is of type 4", w.VerifierKey, v.Kind())
		case seen[w.VerifierKey]:
			p.add(key+"vkey", "%s stands there twice; one key counts once", w.VerifierKey)
		}
		seen[w.VerifierKey] = true
	}
}

func (c *Webhook) validate(p *problems) {
	atLeast(p, "webhook.per_agent", c.PerAgent, 1)
	atLeast(p, "webhook.total", c.Total, 1)
	atLeast(p, "webhook.queue", c.Queue, 16)
	if c.Queue > maxQueue {
		p.add("webhook.queue", "%d is over %d; a receiver that is so far behind is better told to read the rooms", c.Queue, maxQueue)
	}
	positive(p, "webhook.timeout", c.Timeout)
	ordered(p, "webhook.timeout", c.Timeout, "one minute", Duration(time.Minute))
	positive(p, "webhook.retry", c.Retry)
	ordered(p, "webhook.retry", c.Retry, "2 min 12 s, with which five tries take a day", Duration(132*time.Second))
	positive(p, "webhook.history", c.History)
}

// maxQueue is the greatest webhook.queue: a queue is removed in one transaction.
const maxQueue = 50_000

// originProblem says why a text cannot be an origin, or "". The one spelling of an origin, and whether it may be contacted, is
// decided where it is used.
func originProblem(s string) string {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.User != nil || (u.Path != "" && u.Path != "/") ||
		strings.ContainsAny(s, "?#") {
		return fmt.Sprintf("%q is not an origin; write scheme://host[:port], such as \"https://rooms.example\"", s)
	}
	return ""
}

// viaProblem is originProblem for a mirror, which may stand below a path.
func viaProblem(s string) string {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.User != nil || strings.ContainsAny(s, "?#") {
		return fmt.Sprintf("%q is not the URL of a mirror; write the part before /m/, such as \"https://mirror.example\"", s)
	}
	return ""
}

func agents(p *problems, key string, list []string) {
	for _, s := range list {
		id, err := adp.ParseAgentID(s)
		if err == nil {
			pub, _ := id.PublicKey()
			err = adp.CheckPublicKey(pub)
		}
		if err != nil {
			p.add(key, "%q is not an Agent ID, did:agent: and the 43 characters of a public key: %v", s, err)
		}
	}
}

func oneOf(p *problems, key, got string, allowed ...string) {
	if !slices.Contains(allowed, got) {
		p.add(key, "%q is not one of %s", got, strings.Join(allowed, ", "))
	}
}

func atLeast[T ~int | ~int64](p *problems, key string, got, least T) {
	if got < least {
		p.add(key, "%v is below %v", got, least)
	}
}

func positive(p *problems, key string, got Duration) {
	if got <= 0 {
		p.add(key, "%v is not above 0", got)
	}
}

func ordered[T ~int | ~int64](p *problems, low string, lowValue T, high string, highValue T) {
	if lowValue > highValue {
		p.add(low, "%v is over %s, which is %v", lowValue, high, highValue)
	}
}

func rate(p *problems, key string, got float64) {
	if !(got > 0) || math.IsInf(got, 0) { // NaN, too
		p.add(key, "%v is not a number above 0", got)
	}
}
