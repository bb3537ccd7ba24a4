package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// receiverCmd is: receiver NAME [lies]. It takes webhooks, writes the event and the body of each delivery to the file NAME, a line each, and
// sets $NAME to its URL. One that lies fails the challenge.
func receiverCmd(ts *testscript.TestScript, _ bool, args []string) {
	file, err := os.OpenFile(ts.MkAbs(args[0]), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	ts.Check(err)
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if r.Header.Get("Witan-Event") == "ping" {
			var ping struct {
				Challenge string `json:"challenge"`
			}
			_ = json.Unmarshal(body, &ping)
			if len(args) > 1 {
				ping.Challenge = "no"
			}
			_ = json.NewEncoder(w).Encode(ping)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(file, "%s %s\n", r.Header.Get("Witan-Event"), body)
	}))
	ts.Defer(func() { s.Close(); file.Close() })
	ts.Setenv(args[0], s.URL)
}
