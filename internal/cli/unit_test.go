package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/remote"
)

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 7, 4, 10, 0, 0, 0, time.UTC)
	base := now.Add(time.Hour)
	for in, want := range map[string]time.Time{
		"now": now, "+90m": base.Add(90 * time.Minute), "2026-07-05T10:00:00Z": now.AddDate(0, 0, 1), "2026-07-05T12:00:00+02:00": now.AddDate(0, 0, 1),
		"2026-07-05 10:00": time.Date(2026, 7, 5, 10, 0, 0, 0, time.Local), "1783159200000": time.UnixMilli(1783159200000),
	} {
		if got, err := parseTime(in, now, base); err != nil || !got.Equal(want) {
			t.Errorf("parseTime(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "later", "+", "+1", "-1", "2026-13-01 10:00", "10:00"} {
		if got, err := parseTime(in, now, base); err == nil {
			t.Errorf("parseTime(%q) = %v", in, got)
		}
	}
}

func TestPlace(t *testing.T) {
	c := &client{host: "https://Host.example/", Client: remote.Client{HTTP: fetch.New(fetch.Options{AllowPrivate: true})}}
	for in, want := range map[string]string{
		"abc":                                "https://host.example/v1/rooms/abc",
		"http://127.0.0.1:8080/v1/rooms/abc": "http://127.0.0.1:8080/v1/rooms/abc",
		"http://127.0.0.1:8080/v1/rooms/abc/events?after_seq=1":      "http://127.0.0.1:8080/v1/rooms/abc",
		"https://M.example/m/host.example:8443/v1/rooms/abc/archive": "https://m.example/m/host.example:8443/v1/rooms/abc",
	} {
		if got, err := c.place(in); err != nil || got.URL() != want {
			t.Errorf("place(%q) = %q, %v, want %q", in, got.URL(), err, want)
		}
	}
	for _, in := range []string{"", "a/b", "..", "public", "https://x/v1/rooms/", "https://x/v1/rooms/public", "https://x/abc", "https://u:p@x/v1/rooms/abc"} {
		var usage usageError
		if got, err := c.place(in); !errors.As(err, &usage) {
			t.Errorf("place(%q) = %v, %v", in, got, err)
		}
	}
	c.host = "http://127.0.0.1:1/m/host.example/v1/"
	if got, err := c.place("abc"); err != nil || got.URL() != "http://127.0.0.1:1/m/host.example/v1/rooms/abc" {
		t.Errorf("at a mirror: %v, %v", got, err)
	}
}

func TestItems(t *testing.T) {
	var got []string
	text := ": hello\n\nevent: a\ndata: 1\ndata:2\n\nid: 7\n\ndata: x\r\n\r\nevent: cut\ndata: never"
	err := items(strings.NewReader(text), func(event, data string) error {
		got = append(got, event+"="+data)
		return nil
	})
	if s := strings.Join(got, "|"); err != nil || s != "a=1\n2|=x" {
		t.Errorf("%q, %v", s, err)
	}
	stop := errors.New("enough")
	if err := items(strings.NewReader(text), func(string, string) error { return stop }); err != stop {
		t.Errorf("answered %v", err)
	}
	if err := items(strings.NewReader("data: "+strings.Repeat("x", maxItem)), func(string, string) error { return nil }); err == nil {
		t.Error("an item without end was read")
	}
}

func TestBackOff(t *testing.T) {
	var b backOff
	for _, most := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if d := b.next(); d > most*time.Second || d < most*time.Second*3/4 {
			t.Errorf("%v after at most %v s", d, int(most))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		if !wait(ctx, time.Minute) || time.Since(start) != time.Minute {
			t.Error("did not wait a minute")
		}
		cancel()
		if wait(ctx, time.Minute) || time.Since(start) != time.Minute {
			t.Error("waited after the end")
		}
	})
}

func TestProgress(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		want        string
	}{
		{50, 100, "verifying   50% ███████████████░░░░░░░░░░░░░░░  1000 records  250/s  4s left"},
		{100, 100, "verifying  100% ██████████████████████████████  1000 records  250/s"},
		{300, 100, "verifying  100% ██████████████████████████████  1000 records  250/s"},
		{0, 100, "verifying    0% ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  1000 records  250/s"},
		{7, 0, "verifying  1000 records  250/s"},
	} {
		if got := progressLine("verifying", c.done, c.total, 1000, 4*time.Second); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.done, c.total, got, c.want)
		}
	}
	if p := newProgress(io.Discard, "x"); p != nil {
		t.Error("a bar without a terminal")
	}
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &progress{w: &out, what: "work", start: time.Now()}
		p.at(1, 10, 1)
		if out.Len() > 0 {
			t.Errorf("shown at once: %q", out.String())
		}
		time.Sleep(2 * time.Second) // of the bubble
		p.at(5, 10, 5)
		p.at(6, 10, 6) // too soon after the last
		if s := out.String(); strings.Count(s, "\r") != 1 || !strings.Contains(s, " 50% ") {
			t.Errorf("shown: %q", s)
		}
		out.Reset()
		p.end()
		if s := out.String(); strings.Trim(s, " \r") != "" || !strings.HasSuffix(s, "\r") {
			t.Errorf("left behind: %q", s)
		}
	})
}
