package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
)

// wantStatus restates the table of the HTTP API by the codes' own text.
var wantStatus = map[int]string{
	400: "invalid_request invalid_event invalid_event_hash invalid_signature invalid_actor timestamp_out_of_window",
	401: "invalid_token",
	403: "permission_denied membership_required member_banned approval_required role_not_allowed join_request_not_approved",
	404: "not_found room_not_found join_request_not_found agent_status_not_found",
	409: "room_head_mismatch base_record_mismatch nonce_not_greater room_not_active room_ended max_speakers_exceeded join_request_role_mismatch join_request_expired",
	410: "gone",
	451: "withheld",
	413: "payload_too_large",
	422: "payload_schema_violation type_not_defined type_disabled pack_unavailable",
	429: "rate_limited",
	500: "internal no_such_code",
}

func TestStatus(t *testing.T) {
	listed := map[string]bool{}
	for want, codes := range wantStatus {
		for code := range strings.FieldsSeq(codes) {
			listed[code] = true
			if got := Status(adp.Code(code)); got != want {
				t.Errorf("Status(%s) = %d, want %d", code, got, want)
			}
		}
	}
	declared := declaredCodes(t)
	if len(declared) < 32 {
		t.Fatalf("found only %d codes in package adp", len(declared))
	}
	for _, code := range declared {
		if _, ok := statuses[adp.Code(code)]; !ok || !listed[code] {
			t.Errorf("code %s has no status", code)
		}
	}
}

// declaredCodes reads the constants of type Code from adp's source.
func declaredCodes(t *testing.T) (codes []string) {
	files, err := filepath.Glob("../../adp/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			continue // not this package's to judge
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Code" && len(spec.Values) == 1 {
				if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					codes = append(codes, text)
				}
			}
			return true
		})
	}
	return codes
}

func TestWriteErrorBodies(t *testing.T) {
	coded := func(code adp.Code, message string) *adp.Error { return &adp.Error{Code: code, Message: message} }
	for _, tt := range []struct {
		name   string
		err    error
		status int
		body   string
		header map[string]string
	}{
		{"plain", coded(adp.RoomNotFound, "No <such> room & more."), 404,
			`{"error":{"code":"room_not_found","message":"No <such> room & more.","data":{}}}`, nil},
		{"wrapped", fmt.Errorf("secret detail: %w", coded(adp.RoomEnded, "Over.")), 409,
			`{"error":{"code":"room_ended","message":"Over.","data":{}}}`, nil},
		{"data", coded(adp.RoomHeadMismatch, "m").With("seq", 3).With("events_url", "http://x/?a=1&b=2"), 409,
			`{"error":{"code":"room_head_mismatch","message":"m","data":{"events_url":"http://x/?a=1&b=2","seq":3}}}`, nil},
		{"rate limited", coded(adp.RateLimited, "m").With("retry_after", 7), 429,
			`{"error":{"code":"rate_limited","message":"m","data":{"retry_after":7}}}`, map[string]string{"Retry-After": "7"}},
		{"rate limited, fraction", coded(adp.RateLimited, "m").With("retry_after", 1.2), 429,
			`{"error":{"code":"rate_limited","message":"m","data":{"retry_after":2}}}`, map[string]string{"Retry-After": "2"}},
		{"rate limited, as a time", coded(adp.RateLimited, "m").With("retry_after", 1500*time.Millisecond), 429,
			`{"error":{"code":"rate_limited","message":"m","data":{"retry_after":2}}}`, map[string]string{"Retry-After": "2"}},
		{"rate limited, below one", coded(adp.RateLimited, "m").With("retry_after", int64(0)), 429,
			`{"error":{"code":"rate_limited","message":"m","data":{"retry_after":1}}}`, map[string]string{"Retry-After": "1"}},
		{"rate limited, unsaid", coded(adp.RateLimited, "m"), 429,
			`{"error":{"code":"rate_limited","message":"m","data":{}}}`, map[string]string{"Retry-After": "1"}},
		{"nonce", coded(adp.NonceNotGreater, "m").With("max_seen_nonce", int64(1779757210000)), 409,
			`{"error":{"code":"nonce_not_greater","message":"m","data":{"max_seen_nonce":1779757210000}}}`,
			map[string]string{"Max-Seen-Nonce": "1779757210000"}},
		{"nonce, uint64", coded(adp.NonceNotGreater, "m").With("max_seen_nonce", uint64(9007199254740991)), 409,
			`{"error":{"code":"nonce_not_greater","message":"m","data":{"max_seen_nonce":9007199254740991}}}`,
			map[string]string{"Max-Seen-Nonce": "9007199254740991"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			w.Header().Set("Link", "<x>; rel=\"next\"")
			WriteError(w, httptest.NewRequest("GET", "/", nil), tt.err)
			if w.Code != tt.status || w.Body.String() != tt.body {
				t.Errorf("got %d %s\nwant %d %s", w.Code, w.Body, tt.status, tt.body)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
			if got := w.Header().Get("Content-Length"); got != strconv.Itoa(len(tt.body)) {
				t.Errorf("Content-Length %q", got)
			}
			if w.Header().Get("Link") != "" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("header of the abandoned answer: %v", w.Header())
			}
			for name, want := range tt.header {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestWriteErrorHidesTheInside(t *testing.T) {
	for name, err := range map[string]error{
		"foreign":     errors.New("disk secret"),
		"internal":    adp.Errorf(adp.Internal, "disk secret"),
		"unknown":     adp.Errorf("no_such_code", "disk secret"),
		"unencodable": adp.Errorf(adp.RoomEnded, "disk secret").With("f", func() {}),
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			v := &visit{log: slog.New(slog.NewTextHandler(&logged, nil))}
			r := v.attach(httptest.NewRequest("GET", "/p", nil))
			w := httptest.NewRecorder()
			WriteError(w, r, err)
			var got struct {
				Error struct {
					Code, Message string
					Data          map[string]string
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			id := got.Error.Data["request_id"]
			if w.Code != 500 || got.Error.Code != "internal" || got.Error.Message != internalMessage || id == "" {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the answer tells the error: %s", w.Body)
			}
			if !strings.Contains(logged.String(), "request_id="+id) || name != "unencodable" && !strings.Contains(logged.String(), "disk secret") {
				t.Errorf("log: %s", &logged)
			}
		})
	}
}

type fullDisk struct{}

func (fullDisk) Error() string       { return "/secret/path: no space" }
func (fullDisk) Unavailable() string { return "the disk is full" }

// What an operator can mend is said, with the time to wait, wherever it stands in the chain, and without the rest of the error.
func TestWriteErrorUnavailable(t *testing.T) {
	rec := httptest.NewRecorder()
	WriteError(rec, httptest.NewRequest("POST", "/", nil), fmt.Errorf("keep it: %w", fullDisk{}))
	if got := rec.Body.String(); rec.Code != 503 || rec.Header().Get("Retry-After") != "60" || rec.Header().Get("Cache-Control") != "no-store" ||
		got != `{"error":{"code":"internal","message":"the disk is full","data":{"retry_after":60}}}` {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), got)
	}
}

func TestWriteErrorAfterTheAnswerBeganCuts(t *testing.T) {
	mux := NewMux()
	mux.Handle("GET", "/half", func(w http.ResponseWriter, r *http.Request) error {
		_, _ = w.Write([]byte("[1,"))
		return errors.New("lost the rest")
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	resp, err := http.Get(server.URL + "/half")
	if err == nil {
		defer resp.Body.Close()
		_, err = new(bytes.Buffer).ReadFrom(resp.Body)
	}
	if err == nil {
		t.Error("the reader took half an answer for a whole one")
	}
}

func TestRetryAfterAndDecimal(t *testing.T) {
	for _, tt := range []struct {
		in   any
		want int64
	}{{nil, 1}, {"5", 1}, {-3, 1}, {1, 1}, {int64(61), 61}, {2.0001, 3}, {1500 * time.Millisecond, 2}, {1e300, 86_400}} {
		if got := retryAfter(tt.in); got != tt.want {
			t.Errorf("retryAfter(%v) = %d, want %d", tt.in, got, tt.want)
		}
	}
	for _, tt := range []struct {
		in   any
		want string
		ok   bool
	}{{7, "7", true}, {float64(1 << 53), "9007199254740992", true}, {1.5, "", false}, {json.Number("12"), "12", true},
		{json.Number("1e3"), "", false}, {"12\r\nX: y", "", false}, {nil, "", false}} {
		if got, ok := decimal(tt.in); got != tt.want || ok != tt.ok {
			t.Errorf("decimal(%v) = %q, %v", tt.in, got, ok)
		}
	}
}
