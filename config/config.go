// Package config reads the settings of the daemon: a strict TOML file over the defaults, then environment
// variables. A key that is not known is an error with its place, never ignored, and Validate reports all problems at once.
//
// The default file (DefaultText) is the manual: it explains every key beside its default value.
//
// It may not act on a setting: it opens nothing but the file it is given, and contacts nobody.
package config

import "net/netip"

// Config holds every setting. The tags are the keys of the file; the default file explains them.
type Config struct {
	Data                  string         `toml:"data"`
	Listen                string         `toml:"listen"`
	Origin                string         `toml:"origin"`
	TLSCert               string         `toml:"tls_cert"`
	TLSKey                string         `toml:"tls_key"`
	TrustedProxies        []netip.Prefix `toml:"trusted_proxies"`
	AllowPrivateAddresses bool           `toml:"allow_private_addresses"`
	LogLevel              string         `toml:"log_level"`
	LogFormat             string         `toml:"log_format"`
	MinFreeDisk           Size           `toml:"min_free_disk"`

	P2P     P2P     `toml:"p2p"`
	MCP     MCP     `toml:"mcp"`
	Index   Index   `toml:"index"`
	Host    Host    `toml:"host"`
	Limits  Limits  `toml:"limits"`
	Mirror  Mirror  `toml:"mirror"`
	Witness Witness `toml:"witness"`
	Log     Log     `toml:"log"`
	Webhook Webhook `toml:"webhook"`
}

// P2P is the libp2p node.
type P2P struct {
	Enabled bool     `toml:"enabled"`
	Listen  []string `toml:"listen"` // multiaddrs
	Peers   []string `toml:"peers"`  // multiaddrs that end in /p2p/<id>
	Allow   []string `toml:"allow"`  // peer IDs
	Block   []string `toml:"block"`  // peer IDs

	MaxPeers int `toml:"max_peers"`
}

// Index is the search over rooms and messages.
type Index struct {
	Messages    bool  `toml:"messages"`
	MessagesMax int64 `toml:"messages_max"`
}

// MCP is the endpoint /mcp, for agents.
type MCP struct {
	Enabled bool `toml:"enabled"`
}

// Values of Host.RoomCreation.
const (
	CreationOpen      = "open"
	CreationAllowList = "allow_list"
	CreationClosed    = "closed"
)

// Host is the role that hosts our own rooms. A size of 0 and a count of 0 mean no bound where the default file says so.
type Host struct {
	Enabled         bool     `toml:"enabled"`
	RoomCreation    string   `toml:"room_creation"`
	AllowedCreators []string `toml:"allowed_creators"` // Agent IDs
	BannedAgents    []string `toml:"banned_agents"`    // Agent IDs
	RoomsPerCreator int      `toml:"rooms_per_creator"`
	RoomsTotal      int      `toml:"rooms_total"`
	BytesPerRoom    Size     `toml:"bytes_per_room"`
	BytesPerCreator Size     `toml:"bytes_per_creator"`
	BytesTotal      Size     `toml:"bytes_total"`
	JoinRequestTTL  Duration `toml:"join_request_ttl"`
	AgentStatusTTL  Duration `toml:"agent_status_ttl"`
	Withheld        string   `toml:"withheld"`
}

// Values of Host.Withheld and Mirror.Withheld: what becomes of the original of a record that the operator withholds.
const (
	WithheldSeal  = "seal"
	WithheldErase = "erase"
)

// Limits are the quotas that discovery publishes (ADP §21), and the bounds on requests of any kind.
type Limits struct {
	MessagePerMinute    int   `toml:"message_per_minute"`
	SignalPerMinute     int   `toml:"signal_per_minute"`
	ControlPerMinute    int   `toml:"control_per_minute"`
	PayloadBytes        Size  `toml:"payload_bytes"`
	PayloadBytesCeiling Size  `toml:"payload_bytes_ceiling"`
	Mentions            int   `toml:"mentions"`
	SchemaBytes         Size  `toml:"schema_bytes"`
	TypesPerRoom        int   `toml:"types_per_room"`
	RoomMinMs           int64 `toml:"room_min_ms"`
	RoomMaxMs           int64 `toml:"room_max_ms"`
	SpeakersPerRoom     int   `toml:"speakers_per_room"`
	ObserversPerRoom    int   `toml:"observers_per_room"`
	BodyBytes           Size  `toml:"body_bytes"`

	RequestsPerSecond float64 `toml:"requests_per_second"`
	RequestsBurst     int     `toml:"requests_burst"`
	StreamsPerAddress int     `toml:"streams_per_address"`

	Connections           int `toml:"connections"`
	ConnectionsPerAddress int `toml:"connections_per_address"`
}

// Mirror is the role that follows other hosts.
type Mirror struct {
	PollMin            Duration     `toml:"poll_min"`
	PollMax            Duration     `toml:"poll_max"`
	ConcurrencyPerHost int          `toml:"concurrency_per_host"`
	RequestsPerSecond  float64      `toml:"requests_per_second"` // for each host
	BackoffMin         Duration     `toml:"backoff_min"`
	BackoffMax         Duration     `toml:"backoff_max"`
	RoomsPerHost       int          `toml:"rooms_per_host"`
	RecordsPerRoom     int64        `toml:"records_per_room"`
	BytesPerHost       Size         `toml:"bytes_per_host"`
	Withheld           string       `toml:"withheld"`
	Retention          Retention    `toml:"retention"`
	Hosts              []MirrorHost `toml:"host"`
}

// Retention says what is let go of mirrored records, the oldest first. 0 sets no bound.
type Retention struct {
	Age       Duration `toml:"age"`        // since the host received the record
	Bytes     Size     `toml:"bytes"`      // of one room
	Count     int64    `toml:"count"`      // records of one room
	HostBytes Size     `toml:"host_bytes"` // of all rooms of one host
	HostCount int64    `toml:"host_count"` // records of all rooms of one host
}

// Over is the retention of a host that has its own: what it does not set is as for all.
func (r Retention) Over(all Retention) Retention {
	set(&r.Age, all.Age)
	set(&r.Bytes, all.Bytes)
	set(&r.Count, all.Count)
	set(&r.HostBytes, all.HostBytes)
	set(&r.HostCount, all.HostCount)
	return r
}

func set[T ~int64](to *T, def T) {
	if *to == 0 {
		*to = def
	}
}

// MirrorHost is one host to follow.
type MirrorHost struct {
	URL       string    `toml:"url"` // its origin
	Observe   bool      `toml:"observe"`
	Via       []string  `toml:"via"`       // mirrors that serve /m/…, to ask while the host cannot be asked
	Retention Retention `toml:"retention"` // in place of that of all hosts, where set
	KeepAll   bool      `toml:"keep_all"`  // let go of nothing of this host
}

// Witness is the role that attests archives.
type Witness struct {
	Enabled bool         `toml:"enabled"`
	Trust   []Trust      `toml:"trust"`
	Logs    []WitnessLog `toml:"log"`
	Policy  Policy       `toml:"policy"`
}

// Trust is one witness whose statements and attestations are kept although it is not bound to a followed origin.
type Trust struct {
	Agent string `toml:"agent"` // Agent ID
	Group string `toml:"group"` // operator group; a policy of k of n counts each group once
	Name  string `toml:"name"`

	Cosigner string `toml:"cosigner"` // the verifier key by which it cosigns logs; may be ""
	Log      string `toml:"log"`      // the verifier key of its own log; may be ""
}

// WitnessLog is one log whose checkpoints this daemon cosigns (C2SP tlog-witness). A log that signs with several keys has one
// block for each.
type WitnessLog struct {
	Origin      string `toml:"origin"` // the first line of its checkpoints
	VerifierKey string `toml:"vkey"`
}

// Log is the log of what this daemon signs about archives.
type Log struct {
	Witnesses []LogWitness `toml:"witness"`
}

// LogWitness is one witness that is asked to cosign the checkpoints of our log (C2SP tlog-witness).
type LogWitness struct {
	URL         string `toml:"url"` // its submission prefix
	VerifierKey string `toml:"vkey"`
}

// Webhook is the role that posts events to registered URLs.
type Webhook struct {
	Public   bool     `toml:"public"` // agents may register webhooks over HTTP
	PerAgent int      `toml:"per_agent"`
	Total    int      `toml:"total"` // of all agents
	Queue    int      `toml:"queue"` // events that may wait for one receiver
	Timeout  Duration `toml:"timeout"`
	Retry    Duration `toml:"retry"`   // the first pause after a failed try
	History  Duration `toml:"history"` // age of what is told of a room that was just found
}
