package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/witan-adp/witan/daemon"
)

// --watch shows the status again and again, with how a backfill goes, until it is
// interrupted.
func TestStatusWatch(t *testing.T) {
	data := shortFolder(t)
	socket, err := daemon.AdminSocket(data)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	asked := 0
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 3 {
			cancel()
		}
		_ = json.NewEncoder(w).Encode([]map[string]any{{"origin": "https://rooms.example", "state": "following", "source": "config", "rooms": 2, "records": 1000 * asked, "bytes": 5 << 20,
			"behind": 9000, "claimed": 123456, "verdicts": map[string]int{"broken": 1}, "progress": map[string]any{"records": 1000 * asked, "bytes": 3 << 20, "records_per_second": 100, "bytes_per_second": 2048, "pending": 9000, "eta_seconds": 90}}})
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	var out, errw bytes.Buffer
	if status := run(ctx, []string{"mirror", "status", "--watch", "--every", "100ms", "--data", data}, strings.NewReader(""), &out, &errw); status != exitOK && ctx.Err() == nil {
		t.Fatalf("status %d: %s", status, &errw)
	}
	for _, want := range []string{"1000 records, 3.0 MiB; 100 records/s, 2.0 KiB/s, done in about 1m30s", "2000 records, 3.0 MiB", " 9000 +123456 ", "1 broken"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("control characters go to what is no terminal")
	}
	out.Reset()
	if status := run(t.Context(), []string{"mirror", "status", "--watch", "--every", "1ms", "--data", data}, strings.NewReader(""), &out, &errw); status != exitUsage {
		t.Errorf("--every 1ms: status %d", status)
	}
}

// What a host merely lists may be any number.
func TestCopyingForEver(t *testing.T) {
	var h hostReport
	h.Progress.RecordsPerSecond, h.Progress.ETA = 1, 1<<62
	if got := h.copying(); !strings.HasSuffix(got, "done in more than a year") {
		t.Error(got)
	}
}
