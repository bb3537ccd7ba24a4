package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
)

// The main job: one daemon hosts, another mirrors, indexes and attests, and
// the room outlives its host.
func TestHostMirrorAttest(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}, peers: a.info.Peers[:1]})
	creator, speaker := newAgent(t), newAgent(t)
	id := a.create(creator, nil)
	a.act(speaker, id, "room.join", map[string]any{"role": "speaker"})
	a.act(speaker, id, "message.create", text("first"))

	base := "/m/" + authority(a.origin) + "/v1/rooms/" + id
	until(t, "the mirror to hold three records", func() bool {
		var recs []json.RawMessage
		status, _, _ := b.call("GET", base+"/events", nil, &recs)
		return status == 200 && len(recs) == 3
	})
	_, _, own := a.call("GET", "/v1/rooms/"+id+"/events", nil, nil)
	_, header, held := b.call("GET", base+"/events", nil, nil)
	if string(own) != string(held) {
		t.Error("the mirror serves other bytes than the host")
	}
	for name, want := range map[string]string{"Witan-Origin": a.origin, "Witan-Verified-Seq": "3", "Witan-Verdict": "verified"} {
		if got := header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	var found []map[string]any
	until(t, "the index of the mirror to have the room", func() bool {
		b.call("GET", "/v1/index/rooms?q=quorum&host="+url.QueryEscape(a.origin), nil, &found)
		return len(found) == 1 && found[0]["records"] == 3.0
	})
	if found[0]["verdict"] != "verified" || found[0]["url"] != a.origin+"/v1/rooms/"+id {
		t.Errorf("index: %v", found)
	}

	a.act(creator, id, "room.close", map[string]any{"reason": "done"})
	query := "?origin=" + url.QueryEscape(a.origin) + "&room_id=" + id
	for _, d := range []*running{a, b} {
		until(t, "statement and attestation on both sides", func() bool {
			var s, at []json.RawMessage
			d.call("GET", "/v1/witness/statements"+query, nil, &s)
			d.call("GET", "/v1/witness/attestations"+query, nil, &at)
			return len(s) == 1 && len(at) == 1
		})
	}
	var envelopes []json.RawMessage
	a.call("GET", "/v1/witness/attestations"+query, nil, &envelopes)
	v, err := adp.Scan(envelopes[0])
	if err != nil {
		t.Fatal(err)
	}
	e, err := adp.ParseEnvelope(v)
	if err != nil || e.CheckHash() != nil || e.CheckSignature() != nil || string(e.Actor) != b.info.AgentID {
		t.Errorf("the attestation is not B's: %v %s", err, envelopes[0])
	}
	var bundle []byte
	until(t, "the bundle at the mirror", func() bool {
		var status int
		status, _, bundle = b.call("GET", base+"/archive.jsonl", nil, nil)
		return status == 200
	})
	if _, _, host := a.call("GET", "/v1/rooms/"+id+"/archive.jsonl", nil, nil); string(host) != string(bundle) {
		t.Error("host and mirror serve different bundles")
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	port := b.port()
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b = start(t, setup{data: b.data, port: port})
	if _, _, again := b.call("GET", base+"/archive.jsonl", nil, nil); string(again) != string(bundle) {
		t.Error("the bundle changed over a restart")
	}
	var kept []json.RawMessage
	if b.call("GET", "/v1/witness/attestations"+query, nil, &kept); len(kept) != 1 {
		t.Errorf("%d attestations after the restart", len(kept))
	}
}

func TestOriginIsFixed(t *testing.T) {
	d := start(t, setup{})
	port := d.port()
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Data, cfg.Origin, cfg.P2P.Enabled, cfg.MinFreeDisk = d.data, "https://other.example", false, 0
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	err = Run(context.Background(), cfg, Edges{Listener: ln})
	if err == nil || !strings.Contains(err.Error(), d.origin) || !strings.Contains(err.Error(), "other.example") {
		t.Errorf("another origin: %v", err)
	}
	if err := os.Remove(filepath.Join(d.data, "key")); err != nil {
		t.Fatal(err)
	}
	cfg.Origin = d.origin
	if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err = Run(context.Background(), cfg, Edges{Listener: ln}); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("another key: %v", err)
	}
	_ = port
}

func TestOriginOfTheListenAddress(t *testing.T) {
	for _, c := range []struct {
		cfg  config.Config
		ip   string
		want string
	}{
		{config.Config{}, "127.0.0.1", "http://127.0.0.1:8080"},
		{config.Config{TLSCert: "x"}, "127.0.0.1", "https://127.0.0.1:8080"},
		{config.Config{Origin: "https://Example.ORG:443/"}, "0.0.0.0", "https://example.org"},
		{config.Config{}, "0.0.0.0", ""},
		{config.Config{}, "::", ""},
		{config.Config{Origin: "https://example.org/path"}, "127.0.0.1", ""},
	} {
		got, err := resolveOrigin(c.cfg, &net.TCPAddr{IP: net.ParseIP(c.ip), Port: 8080})
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v on %s: %q, %v", c.cfg.Origin, c.ip, got, err)
		}
	}
}

// A room that ended while the daemon slept is finished when it wakes.
func TestSleptThroughTheEnd(t *testing.T) {
	var skew atomic.Int64
	now := func() int64 { return time.Now().UnixMilli() + skew.Load() }
	d := start(t, setup{now: now})
	id := d.create(newAgent(t), nil)
	port := d.port()
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	skew.Store(2 * 3600_000)
	d = start(t, setup{data: d.data, port: port, now: now})
	query := "?origin=" + url.QueryEscape(d.origin) + "&room_id=" + id
	until(t, "the statement", func() bool {
		var s []json.RawMessage
		d.call("GET", "/v1/witness/statements"+query, nil, &s)
		return len(s) == 1
	})
	if st := d.room(id)["status"]; st != "ended" {
		t.Errorf("status %v", st)
	}
}

func TestRequestsForAnotherName(t *testing.T) {
	d := start(t, setup{})
	for path, want := range map[string]int{"/v1/rooms/public": 421, "/healthz": 200} {
		req, err := http.NewRequest("GET", d.origin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "other.example"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// Stopping ends streams and long polls at once, and leaves nothing half done. The best of
// some tries counts: a busy machine makes each of them slow.
func TestStopEndsStreams(t *testing.T) {
	const soon = 8 * time.Second // less than requests under way get at most
	took := stopWithStreams(t)
	for try := 1; try < 4 && took > soon; try++ {
		took = stopWithStreams(t)
	}
	if took > soon {
		t.Errorf("the stop took %s", took)
	}
}

func stopWithStreams(t *testing.T) (took time.Duration) {
	t.Helper()
	d := start(t, setup{})
	a := newAgent(t)
	id := d.create(a, nil)
	token, err := adp.SignToken(a.key, d.origin, time.Now().Unix(), 120)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("GET", d.origin+"/v1/rooms/"+id+"/events/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		if r, err := http.Get(d.origin + "/v1/rooms/" + id + "/events?after_seq=1&wait=25"); err == nil {
			r.Body.Close()
		}
	}()
	begin := time.Now()
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	took = time.Since(begin)
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
	<-polled
	return took
}

func TestAdminSocket(t *testing.T) {
	d := start(t, setup{})
	path, err := AdminSocket(d.data)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("admin socket: %v %v", info.Mode(), err)
	}
	post := func(path, body string) (int, string) { return d.operate("POST", path, json.RawMessage(body), nil) }
	if status, body := post("/host/access", `{"room_creation":"closed"}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	now := time.Now().UnixMilli()
	payload := map[string]any{"topic": "T", "visibility": "public", "start_time": now, "end_time": now + 3600_000}
	if status, _, raw := d.call("POST", "/v1/rooms", newAgent(t).event(t, "room.create", payload, nil), nil); status != 403 || !strings.Contains(string(raw), "room_creation") {
		t.Errorf("creation while closed: %d %s", status, raw)
	}
	for path, body := range map[string]string{"/host/access": `{"room_creation":"maybe"}`, "/mirror/add": `{"origin":"not an origin"}`, "/mirror/retry": `{"origin":"https://nobody.example"}`} {
		if status, answer := post(path, body); status != 400 && status != 404 {
			t.Errorf("%s %s: %d %s", path, body, status, answer)
		}
	}
}
