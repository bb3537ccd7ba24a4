package config

import (
	"bytes"
	_ "embed"
	"time"
)

//go:embed default.toml
var defaultText []byte

// DefaultText is the default file, which explains every key.
func DefaultText() []byte { return bytes.Clone(defaultText) }

// Default returns the settings of an empty file.
func Default() Config {
	return Config{
		Data: "./witan-data", Listen: "127.0.0.1:8080", TrustedProxies: nil, LogLevel: "info", LogFormat: "text", MinFreeDisk: 256 * MiB,
		MCP: MCP{Enabled: true}, Index: Index{Messages: true, MessagesMax: 1_000_000},
		P2P: P2P{Enabled: true, Listen: []string{"/ip4/127.0.0.1/tcp/4011"}, MaxPeers: 128},
		Host: Host{Enabled: true, RoomCreation: CreationOpen, RoomsPerCreator: 1000, RoomsTotal: 100_000, BytesPerRoom: 256 * MiB, BytesPerCreator: 4 * GiB,
			JoinRequestTTL: Duration(time.Hour), AgentStatusTTL: Duration(5 * time.Minute), Withheld: WithheldSeal},
		// ADP §21
		Limits: Limits{MessagePerMinute: 5, SignalPerMinute: 60, ControlPerMinute: 10, PayloadBytes: 64 * KiB, PayloadBytesCeiling: 256 * KiB, Mentions: 32,
			SchemaBytes: 16 * KiB, TypesPerRoom: 64, RoomMinMs: 600_000, RoomMaxMs: 604_800_000, SpeakersPerRoom: 100, ObserversPerRoom: 1000,
			BodyBytes: 512 * KiB, RequestsPerSecond: 500, RequestsBurst: 2000, StreamsPerAddress: 256,
			Connections: 16384, ConnectionsPerAddress: 1024},
		Mirror: Mirror{PollMin: Duration(time.Second), PollMax: Duration(time.Minute), ConcurrencyPerHost: 4, RequestsPerSecond: 20,
			BackoffMin: Duration(time.Minute), BackoffMax: Duration(168 * time.Hour), RoomsPerHost: 100_000, RecordsPerRoom: 10_000_000, Withheld: WithheldSeal},
		Witness: Witness{Enabled: true},
		Webhook: Webhook{PerAgent: 5, Total: 1000, Queue: 10_000, Timeout: Duration(10 * time.Second), Retry: Duration(2 * time.Minute), History: Duration(24 * time.Hour)},
	}
}
