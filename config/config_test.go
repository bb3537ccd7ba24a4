package config

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const agent = "did:agent:6kpsY-KcUgq-9VB7Ey7F-ZVHdq6-vnuSQh7qaRRG0iw"

var opts = cmp.Options{cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty()}

// The default file alone, over nothing, gives the defaults: so it mentions every key, and with the value that holds.
func TestDefaultTextIsDefault(t *testing.T) {
	got, err := parse("default.toml", DefaultText(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Default(), got, opts); d != "" {
		t.Fatalf("the default file differs from Default (-want +got):\n%s", d)
	}
	c := Default()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	// A key whose default is the zero value would pass above without a mention.
	text := string(DefaultText())
	section := ""
	mentioned := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "# "))
		if name, ok := strings.CutPrefix(line, "["); ok && strings.HasSuffix(line, "]") {
			section = strings.Trim(name, "[]") + "."
		} else if key, _, ok := strings.Cut(line, " = "); ok {
			mentioned[section+key] = true
		}
	}
	var walk func(reflect.Type, string)
	walk = func(table reflect.Type, path string) {
		for f := range table.Fields() {
			key := path + f.Tag.Get("toml")
			if elem, ok := isTable(f.Type); ok {
				walk(elem, key+".")
			} else if !mentioned[key] {
				t.Errorf("the default file does not mention %s", key)
			}
		}
	}
	walk(configType, "")
}

func TestDefaultTextIsACopy(t *testing.T) {
	DefaultText()[0] = 'x'
	if DefaultText()[0] != '#' {
		t.Error("a caller changed the default file")
	}
}

// What the comments of the default file show as examples is right.
func TestDefaultTextExamples(t *testing.T) {
	text := string(DefaultText())
	for _, s := range []string{"[[mirror.host]]", "url = ", "observe = ", "via = ", "keep_all = ", "[mirror.host.retention]", "age = ", "bytes = ", "count = ", "host_bytes = ", "host_count = ", "[[witness.trust]]", "agent = ", "group = ", "name = ", "cosigner = ", "[[witness.policy.group]]", "[[witness.policy.origin]]", "agent = ", "log = ", "threshold = ", "members = ", "[[witness.log]]", "origin = ", "vkey = ", "[[log.witness]]"} {
		text = strings.ReplaceAll(text, "\n# "+s, "\n"+s)
	}
	c, err := parse("x", []byte(text), Default())
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Witness.Policy; len(p.Groups) != 1 || p.Groups[0].Threshold != 2 || len(p.Groups[0].Members) != 3 || len(p.Origins) != 1 {
		t.Fatalf("%+v", p)
	}
	c.Witness.Policy.Groups = nil // its members are not among the examples
	if err := c.Validate(); err != nil || len(c.Mirror.Hosts) != 1 || len(c.Witness.Trust) != 1 || len(c.Witness.Logs) != 1 || len(c.Log.Witnesses) != 1 {
		t.Fatalf("%v %+v %+v %+v", err, c.Mirror.Hosts, c.Witness, c.Log)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "witan.toml")
	text := `listen = "[::1]:9000"
trusted_proxies = ["10.0.0.0/8", "2001:db8::/32"]
min_free_disk = 1048576
p2p.listen = ["/ip4/0.0.0.0/tcp/1", "/ip4/0.0.0.0/tcp/2"]
[host]
bytes_total = "1 TiB"
join_request_ttl = "90m"
[limits]
payload_bytes = "32KiB"
requests_per_second = 0.5
[[mirror.host]]
url = "https://a.example"
observe = true
[[mirror.host]]
url = "https://b.example"
via = ["https://c.example", "http://d.example/x"]
[witness]
trust = [{agent = "` + agent + `", group = "g"}]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Listen = "[::1]:9000"
	want.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	want.MinFreeDisk = MiB
	want.P2P.Listen = []string{"/ip4/0.0.0.0/tcp/1", "/ip4/0.0.0.0/tcp/2"}
	want.Host.BytesTotal = TiB
	want.Host.JoinRequestTTL = Duration(90 * time.Minute)
	want.Limits.PayloadBytes = 32 * KiB
	want.Limits.RequestsPerSecond = 0.5
	want.Mirror.Hosts = []MirrorHost{{URL: "https://a.example", Observe: true}, {URL: "https://b.example", Via: []string{"https://c.example", "http://d.example/x"}}}
	want.Witness.Trust = []Trust{{Agent: agent, Group: "g"}}
	if d := cmp.Diff(want, got, opts); d != "" {
		t.Fatal(d)
	}
	if err := got.Validate(); err != nil {
		t.Fatal(err)
	}
	if got, err := parse("x", []byte("p2p.listen = []"), Default()); err != nil || len(got.P2P.Listen) != 0 {
		t.Fatalf("an empty list does not empty: %v, %v", got.P2P.Listen, err)
	}
	if _, err := Load(path + ".absent"); err == nil || !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("absent file: %v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("#\n", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("long file: %v", err)
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}

func TestParseRefuses(t *testing.T) {
	for text, wants := range map[string][]string{
		"lisen = 1":                                {`f:1:1: unknown key lisen; did you mean "listen"?`},
		"\n  LISTEN = \"x\"":                       {`f:2:3: unknown key LISTEN; did you mean "listen"?`},
		"[host]\nroms_total = 1":                   {`f:2:1: unknown key host.roms_total; did you mean "rooms_total"?`},
		"[limits]\n[hots]\nenabled=true":           {`f:2:2: unknown key hots; did you mean "host"?`},
		"[[mirror.hosts]]\nurl='x'":                {`f:1:10: unknown key mirror.hosts; did you mean "host"?`},
		"[[mirror.host]]\nuri='x'":                 {`f:2:1: unknown key mirror.host.uri; did you mean "url"?`},
		"[p2p]\ndata = 'x'":                        {`f:2:1: unknown key p2p.data; did you mean data? A key belongs to the [section] above it`},
		"message_per_minute = 1":                   {`f:1:1: unknown key message_per_minute; did you mean limits.message_per_minute?`},
		"zzz.listen = 1\nyyy = 2":                  {`f:1:1: unknown key zzz; ` + "`witan config default`", `f:2:1: unknown key yyy`},
		"p2p = {enabled = true, lissen = []}":      {`f:1:24: unknown key p2p.lissen; did you mean "listen"?`},
		"witness.trust = [{agnet = 'x'}]":          {`f:1:19: unknown key witness.trust.agnet; did you mean "agent"?`},
		"[mirror]\npoll_min = 30":                  {`f:2:12: mirror.poll_min: must be a time in quotes, a number and a unit`},
		"[mirror]\npoll_min = \"30\"":              {"f:2:12:", "is not a time"},
		"[host]\nbytes_total = \"4 gigs\"":         {"f:2:15:", "is not a size", "64KiB"},
		"[host]\nbytes_total = \"-1\"":             {"is not a size"},
		"[host]\nbytes_total = 1.5":                {"f:2:15: host.bytes_total: must be a size"},
		"[host]\nbytes_total = \"9999999TiB\"":     {"is not a size"},
		"listen = 5":                               {"f:1:10: listen: must be a text in quotes"},
		"\nlisten = [\"x\"]":                       {"f:2:1: listen: must be a text"},
		"\nlisten = {a = 1}":                       {"f:2:10: listen: must be a text"},
		"\np2p.listen = \"x\"":                     {"f:2:14: p2p.listen: must be a list"},
		"\nlisten = 2026-01-02":                    {"f:2:10: listen: must be a text"},
		"[p2p]\nenabled = \"yes\"":                 {"f:2:11: p2p.enabled: must be true or false"},
		"[limits]\nmentions = 3.5":                 {"f:2:12: limits.mentions: must be a whole number"},
		"[limits]\nmentions = 9999999999999999999": {"f:2:12:"},
		"trusted_proxies = [\"10.0.0.1\"]":         {"f:1:20:", "10.0.0.1"},
		"listen = \"a\"\nlisten = \"b\"":           {"f:2:1:"},
		"[p2p]\n[p2p]":                             {"f:2:2:"},
		"listen = ":                                {"f:1:"},
		"listen.x = 1":                             {"f"},
		"p2p = 1":                                  {"f:1:7: p2p: must be a [section]"},
	} {
		_, err := parse("f", []byte(text), Default())
		if err == nil {
			t.Errorf("%q was taken", text)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error\n%v\nlacks %q", text, err, want)
			}
		}
	}
}

func TestErrorsAreBounded(t *testing.T) {
	_, err := parse("f", []byte(strings.Repeat("[x]\n", 10_000)), Default())
	if err == nil || strings.Count(err.Error(), "\n")+1 != maxErrors {
		t.Errorf("error %v", err)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "5": 5, "5B": 5, "1KB": 1000, "1KiB": 1024, "3 MiB": 3 * MiB, "2GB": 2e9, "1TiB": TiB, "9223372036854775807": math.MaxInt64} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%q = %d, %v; want %d", text, s, err, want)
		}
		var again Size
		if err := again.UnmarshalText([]byte(want.String())); err != nil || again != want {
			t.Errorf("%d is written %q, which reads as %d, %v", want, want, again, err)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "+1", "1.5KiB", "1kib", "1  KiB", "1KiB ", "9223372036854775808", "8388608TiB", "0x10", "1_000"} {
		s := Size(7)
		if err := s.UnmarshalText([]byte(text)); err == nil || s != 7 {
			t.Errorf("%q was taken as %d", text, s)
		}
	}
}

func TestApplyEnv(t *testing.T) {
	got := Default()
	err := ApplyEnv(&got, []string{"PATH=/bin", "WITAN=./witan", "WITAN_DATA=/d", "WITAN_LISTEN= :80 ", "WITAN_ORIGIN=", "WITAN_ALLOW_PRIVATE_ADDRESSES=1",
		"WITAN_TLS_CERT=a=b", "WITAN_TRUSTED_PROXIES=10.0.0.0/8, ::1/128,", "WITAN_MIN_FREE_DISK=1GiB", "WITAN_P2P_ENABLED=false", "WITAN_P2P_LISTEN=",
		"WITAN_HOST_ROOM_CREATION=closed", "WITAN_HOST_BANNED_AGENTS=a,b", "WITAN_HOST_AGENT_STATUS_TTL=30s", "WITAN_LIMITS_PAYLOAD_BYTES=1024",
		"WITAN_LIMITS_ROOM_MAX_MS=5", "WITAN_LIMITS_MENTIONS=3", "WITAN_MIRROR_REQUESTS_PER_SECOND=0.25", "WITAN_WITNESS_ENABLED=false"})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Data, want.Listen, want.AllowPrivateAddresses, want.TLSCert, want.MinFreeDisk = "/d", ":80", true, "a=b", GiB
	want.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	want.P2P.Enabled, want.P2P.Listen = false, nil
	want.Host.RoomCreation, want.Host.BannedAgents, want.Host.AgentStatusTTL = CreationClosed, []string{"a", "b"}, Duration(30*time.Second)
	want.Limits.PayloadBytes, want.Limits.RoomMaxMs, want.Limits.Mentions = 1024, 5, 3
	want.Mirror.RequestsPerSecond, want.Witness.Enabled = 0.25, false
	if d := cmp.Diff(want, got, opts); d != "" {
		t.Fatal(d)
	}
}

func TestApplyEnvRefuses(t *testing.T) {
	c := Default()
	err := ApplyEnv(&c, []string{"WITAN_LISTNE=x", "WITAN_P2P_ENABLED=maybe", "WITAN_HOST_ROOMS_TOTAL=1e3", "WITAN_MIRROR_POLL_MIN=30", "WITAN_MIRROR_HOST=https://a.example",
		"WITAN_LIMITS_BODY_BYTES=", "WITAN_TRUSTED_PROXIES=10.0.0.0/8,x", "WITAN_LIMITS_REQUESTS_PER_SECOND=fast", "WITAN_listen=x", "WITAN_QUITE_DIFFERENT=1"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"WITAN_LISTNE: no such setting; did you mean WITAN_LISTEN?", "WITAN_P2P_ENABLED: \"maybe\"", "WITAN_HOST_ROOMS_TOTAL: \"1e3\"",
		"WITAN_MIRROR_POLL_MIN: \"30\" is not a time", "WITAN_MIRROR_HOST: no such setting; hosts, witnesses and logs are blocks", "WITAN_LIMITS_BODY_BYTES: \"\" is not a size",
		"WITAN_TRUSTED_PROXIES: ", "WITAN_LIMITS_REQUESTS_PER_SECOND: \"fast\"", "WITAN_listen: no such setting", "WITAN_QUITE_DIFFERENT: no such setting"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 10 {
		t.Errorf("%d errors:\n%v", n, err)
	}
}

// Every setting has a variable of its own and takes the text of its default.
func TestEveryVariable(t *testing.T) {
	names := map[string]bool{}
	c := Default()
	settings(reflect.ValueOf(&c).Elem(), nil, func(path []string, v reflect.Value) {
		name := envName(path)
		if names[name] {
			t.Errorf("two settings are called %s", name)
		}
		names[name] = true
		text := ""
		switch x := v.Interface().(type) {
		case []string:
			text = strings.Join(x, ",")
		case []netip.Prefix:
		default:
			text = fmt.Sprint(x)
		}
		if err := ApplyEnv(&c, []string{name + "=" + text}); err != nil {
			t.Error(err)
		}
	})
	if d := cmp.Diff(Default(), c, opts); d != "" {
		t.Error(d)
	}
	if len(names) < 49 {
		t.Errorf("only %d settings", len(names))
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		key    string
		change func(*Config)
	}{
		{"data", func(c *Config) { c.Data = "" }},
		{"listen", func(c *Config) { c.Listen = "8080" }},
		{"listen", func(c *Config) { c.Listen = "127.0.0.1:http" }},
		{"listen", func(c *Config) { c.Listen = "127.0.0.1:70000" }},
		{"origin", func(c *Config) { c.Origin = "rooms.example" }},
		{"origin", func(c *Config) { c.Origin = "https://rooms.example/v1" }},
		{"origin", func(c *Config) { c.Origin = "https://u@rooms.example" }},
		{"origin", func(c *Config) { c.Origin = "https://:80" }},
		{"tls_cert, tls_key", func(c *Config) { c.TLSCert = "x" }},
		{"trusted_proxies", func(c *Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")} }},
		{"trusted_proxies", func(c *Config) { c.TrustedProxies = []netip.Prefix{{}} }},
		{"log_level", func(c *Config) { c.LogLevel = "loud" }},
		{"log_format", func(c *Config) { c.LogFormat = "xml" }},
		{"min_free_disk", func(c *Config) { c.MinFreeDisk = -1 }},
		{"p2p.listen", func(c *Config) { c.P2P.Listen = []string{"127.0.0.1:4011"} }},
		{"p2p.peers", func(c *Config) { c.P2P.Peers = []string{"/ip4/127.0.0.1/tcp/4011"} }},
		{"p2p.peers", func(c *Config) { c.P2P.Peers = []string{"/ip4/127.0.0.1/tcp/4011/p2p/x"} }},
		{"p2p.allow", func(c *Config) { c.P2P.Allow = []string{"x"} }},
		{"p2p.block", func(c *Config) { c.P2P.Block = []string{"/ip4/127.0.0.1/tcp/4011"} }},
		{"p2p.block", func(c *Config) { c.P2P.Block = []string{""} }},
		{"p2p.max_peers", func(c *Config) { c.P2P.MaxPeers = 0 }},
		{"host.room_creation", func(c *Config) { c.Host.RoomCreation = "" }},
		{"host.allowed_creators", func(c *Config) { c.Host.AllowedCreators = []string{"did:agent:x"} }},
		{"host.banned_agents", func(c *Config) { c.Host.BannedAgents = []string{"did:agent:" + strings.Repeat("A", 43)} }}, // of small order
		{"host.rooms_total", func(c *Config) { c.Host.RoomsTotal = -1 }},
		{"host.bytes_per_room", func(c *Config) { c.Host.BytesPerRoom = -1 }},
		{"host.join_request_ttl", func(c *Config) { c.Host.JoinRequestTTL = 0 }},
		{"limits.message_per_minute", func(c *Config) { c.Limits.MessagePerMinute = 0 }},
		{"limits.payload_bytes", func(c *Config) { c.Limits.PayloadBytes = c.Limits.PayloadBytesCeiling + 1 }},
		{"limits.payload_bytes_ceiling", func(c *Config) { c.Limits.PayloadBytesCeiling = c.Limits.BodyBytes + 1 }},
		{"limits.mentions", func(c *Config) { c.Limits.Mentions = 33 }},
		{"limits.room_min_ms", func(c *Config) { c.Limits.RoomMinMs = c.Limits.RoomMaxMs + 1 }},
		{"limits.requests_per_second", func(c *Config) { c.Limits.RequestsPerSecond = math.NaN() }},
		{"limits.requests_burst", func(c *Config) { c.Limits.RequestsBurst = 0 }},
		{"limits.streams_per_address", func(c *Config) { c.Limits.StreamsPerAddress = 0 }},
		{"limits.connections", func(c *Config) { c.Limits.Connections = 0 }},
		{"limits.connections_per_address", func(c *Config) { c.Limits.ConnectionsPerAddress = 0 }},
		{"mirror.poll_min", func(c *Config) { c.Mirror.PollMin = c.Mirror.PollMax + 1 }},
		{"mirror.backoff_min", func(c *Config) { c.Mirror.BackoffMin = c.Mirror.BackoffMax + 1 }},
		{"mirror.requests_per_second", func(c *Config) { c.Mirror.RequestsPerSecond = math.Inf(1) }},
		{"mirror.concurrency_per_host", func(c *Config) { c.Mirror.ConcurrencyPerHost = 0 }},
		{"mirror.records_per_room", func(c *Config) { c.Mirror.RecordsPerRoom = 0 }},
		{"host.withheld", func(c *Config) { c.Host.Withheld = "hide" }},
		{"mirror.retention.age", func(c *Config) { c.Mirror.Retention.Age = Duration(time.Minute) }},
		{"mirror.retention.count", func(c *Config) { c.Mirror.Retention.Count = -1 }},
		{"mirror.host 1: retention.host_bytes", func(c *Config) {
			c.Mirror.Hosts = []MirrorHost{{URL: "https://a.example", Retention: Retention{HostBytes: -1}}}
		}},
		{"mirror.withheld", func(c *Config) { c.Mirror.Withheld = "" }},
		{"mirror.host 1: url", func(c *Config) { c.Mirror.Hosts = []MirrorHost{{}} }},
		{"mirror.host 2: url", func(c *Config) {
			c.Mirror.Hosts = []MirrorHost{{URL: "https://a.example"}, {URL: "https://A.example/"}}
		}},
		{"mirror.host 1: via", func(c *Config) {
			c.Mirror.Hosts = []MirrorHost{{URL: "https://a.example", Via: []string{"c.example"}}}
		}},
		{"mirror.host 1: via", func(c *Config) {
			c.Mirror.Hosts = []MirrorHost{{URL: "https://a.example", Via: []string{"https://c.example?x"}}}
		}},
		{"mirror.host 1: via", func(c *Config) {
			c.Mirror.Hosts = []MirrorHost{{URL: "https://a.example", Via: []string{"https://u@c.example"}}}
		}},
		{"mirror.host 1: via", func(c *Config) {
			c.Mirror.Hosts = []MirrorHost{{URL: "https://a.example", Via: []string{"https://A.example/"}}}
		}},
		{"witness.trust 1: agent", func(c *Config) { c.Witness.Trust = []Trust{{Group: "g"}} }},
		{"witness.trust 1: group", func(c *Config) { c.Witness.Trust = []Trust{{Agent: agent}} }},
		{"witness.trust 2: agent", func(c *Config) { c.Witness.Trust = []Trust{{Agent: agent, Group: "g"}, {Agent: agent, Group: "h"}} }},
	} {
		c := Default()
		tt.change(&c)
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), tt.key+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tt.key, err)
		}
	}
	var zero Config
	if err := zero.Validate(); err == nil || strings.Count(err.Error(), "\n") < 15 {
		t.Errorf("not all problems at once: %v", err)
	}
}

func TestRetentionOfOneHost(t *testing.T) {
	c, err := parse("f", []byte(`[mirror.retention]
age = "2160h"
count = 1000
[[mirror.host]]
url = "https://a.example"
retention = { count = 10, host_bytes = "1GiB" }
[[mirror.host]]
url = "https://b.example"
keep_all = true
[mirror.host.retention]
age = "24h"
`), Default())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	want := []Retention{{Age: Duration(2160 * time.Hour), Count: 10, HostBytes: GiB}, {Age: Duration(24 * time.Hour), Count: 1000}}
	for i, h := range c.Mirror.Hosts {
		if got := h.Retention.Over(c.Mirror.Retention); got != want[i] || h.KeepAll != (i == 1) {
			t.Errorf("%s: %+v", h.URL, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(DefaultText())
	f.Add([]byte("p2p = {enabled = true, listen = ['x']}\n[[mirror.host]]\nurl = 'x'"))
	f.Add([]byte("trusted_proxies = ['10.0.0.0/8']\nwitness.trust = [{agent = 'x'}]"))
	f.Add([]byte("[mirror]\npoll_min = \"1h\"\n[host]\nbytes_total = 0x10"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse("f", data, Default())
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("an error without the file: %v", err)
			}
			return
		}
		_ = c.Validate()
	})
}
