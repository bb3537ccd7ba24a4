package verifier_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/inspect"
	"github.com/witan-adp/witan/internal/inspect/inspecttest"
)

// theFolder is that of the program, once it was asked for.
var theFolder string

// program is a folder with all that the worker needs, compiled from this source.
var program = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "witan-verifier-"); err != nil {
		return "", err
	}
	theFolder = dir
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "verify.wasm"), "./wasm")
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return dir, err
	}
	for to, from := range map[string]string{"wasm_exec.js": filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"), "verify-worker.js": "verify-worker.js"} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o600)
		}
		if err != nil {
			return dir, err
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if theFolder != "" {
		_ = os.RemoveAll(theFolder)
	}
	os.Exit(code)
}

type answer struct {
	Report json.RawMessage `json:"report"`
	Error  string          `json:"error"`
	Told   int             `json:"told"`
}

// work lets the worker answer requests.
func work(t *testing.T, requests []map[string]any) []answer {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node here")
	}
	version, err := exec.CommandContext(t.Context(), node, "-p", `process.versions.node.split(".")[0]`).Output()
	if n, _ := strconv.Atoi(strings.TrimSpace(string(version))); err != nil || n < 20 {
		t.Skipf("node 20 or newer is needed, here is %s (%v)", version, err)
	}
	dir, err := program()
	if err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(requests)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, node, filepath.Join("testdata", "worker.mjs"), dir)
	var said bytes.Buffer
	c.Stdin, c.Stderr = bytes.NewReader(in), &said
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.Bytes())
	}
	var all []answer
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var a answer
		if err := d.Decode(&a); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	if len(all) != len(requests) {
		t.Fatalf("%d answers to %d requests: %s", len(all), len(requests), said.Bytes())
	}
	return all
}

// served is a Place over HTTP in this process.
type served struct{ url string }

func (s served) get(path string) ([]byte, error) {
	r, err := http.Get(s.url + path)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != 200 {
		v, err := adp.Scan(b)
		if err != nil {
			return nil, err
		}
		return nil, inspect.NotGiven{Err: fmt.Errorf("%s: %s (status %d)", v.Get("error").Get("code").Text(), v.Get("error").Get("message").Text(), r.StatusCode)}
	}
	return b, err
}

func (s served) json(path string) (adp.Value, error) {
	b, err := s.get(path)
	if err != nil {
		return adp.Value{}, err
	}
	return adp.ScanDepth(b, adp.RecordDepth+24)
}

func (s served) Resource(context.Context) (*inspect.Resource, error) {
	v, err := s.json("")
	if err != nil {
		return nil, err
	}
	return inspect.ParseResource(v, inspecttest.RoomID)
}

func (s served) Manifest(context.Context) ([]byte, error) {
	v, err := s.json("/archive")
	if _, no := err.(inspect.NotGiven); no {
		return nil, nil
	}
	return v.Raw(), err
}

func (s served) Records(_ context.Context, after int64, limit int) ([]adp.Value, error) {
	v, err := s.json(fmt.Sprintf("/events?after_seq=%d&limit=%d", after, limit))
	return slices.Collect(v.Elements()), err
}

func (s served) Bundle(context.Context) (io.ReadCloser, error) {
	b, err := s.get("/archive.jsonl")
	return io.NopCloser(bytes.NewReader(b)), err
}

func start(t *testing.T, s http.Handler) string {
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h.URL
}

// What the browser finds is what the command line finds, to the letter: for an honest host, and for every way to be a bad one.
func TestSameAsNative(t *testing.T) {
	type room struct {
		name  string
		url   string
		said  *inspect.Said
		pages int // of what is signed
	}
	var rooms []room
	add := func(name string, b *inspecttest.Builder, spoil func(*inspecttest.Served)) {
		s, sum := b.Serve(), b.Sum()
		if spoil != nil {
			spoil(s)
		}
		rooms = append(rooms, room{name, start(t, s), &inspect.Said{Records: sum.Count, LastHash: sum.LastHash, Root: adp.Encode(sum.Root[:]), Verdict: "verified"}, 1 + len(s.SignedMore)})
	}
	add("honest and over", inspecttest.Room(300, true), nil)
	add("honest and live", inspecttest.Room(1100, false), nil)
	signed := inspecttest.Room(10, true)
	add("signed", signed, func(s *inspecttest.Served) {
		s.Signed = slices.Concat([]byte("["), signed.Announce(3, nil), []byte(","), signed.Announce(4, map[string]any{"last_hash": signed.Sum().Genesis}), []byte("]"))
	})
	add("something is signed by nobody", signed, func(s *inspecttest.Served) {
		s.Signed = slices.Concat([]byte("["), bytes.Replace(signed.Announce(3, nil), []byte("host.example"), []byte("evil.example"), 1), []byte("]"))
	})
	add("signed, on several pages", signed, func(s *inspecttest.Served) {
		s.Signed = slices.Concat([]byte("["), signed.Announce(3, nil), []byte("]"))
		s.SignedMore = [][]byte{slices.Concat([]byte("["), signed.Announce(4, nil), []byte("]")), slices.Concat([]byte("["), signed.Announce(5, nil), []byte("]"))}
	})
	add("signed by nobody, on the last page", signed, func(s *inspecttest.Served) {
		s.Signed = slices.Concat([]byte("["), signed.Announce(3, nil), []byte("]"))
		s.SignedMore = [][]byte{slices.Concat([]byte("["), bytes.Replace(signed.Announce(4, nil), []byte("host.example"), []byte("evil.example"), 1), []byte("]"))}
	})
	for _, name := range slices.Sorted(maps.Keys(inspecttest.Faults)) {
		f := inspecttest.Faults[name]
		add(name, inspecttest.Room(10, f.Over), f.Spoil)
	}

	var requests []map[string]any
	for _, r := range rooms {
		requests = append(requests, map[string]any{"room": r.url + "/v1/rooms/" + inspecttest.RoomID, "id": inspecttest.RoomID, "said": r.said, "signed": []string{r.url + "/v1/witness/statements"}})
	}
	for i, a := range work(t, requests) {
		r := rooms[i]
		if a.Error != "" {
			t.Errorf("%s: %s", r.name, a.Error)
			continue
		}
		url := requests[i]["room"].(string)
		in := inspect.New(url)
		in.Said = r.said
		if err := in.Archive(t.Context(), served{url}, inspecttest.RoomID); err != nil {
			t.Fatal(err)
		}
		for page := range r.pages {
			list, err := served{r.url}.json(fmt.Sprintf("/v1/witness/statements?cursor=%d", page))
			if err != nil {
				t.Fatal(err)
			}
			for v := range list.Elements() {
				in.CheckSigned(v)
			}
		}
		want, err := json.Marshal(in.Report())
		if err != nil {
			t.Fatal(err)
		}
		var got, native any
		if json.Unmarshal(a.Report, &got) != nil || json.Unmarshal(want, &native) != nil || !equal(got, native) {
			t.Errorf("%s:\n  browser %s\n  native  %s", r.name, a.Report, want)
		}
		rep := in.Report()
		honest := strings.HasPrefix(r.name, "honest") || r.name == "signed" || r.name == "signed, on several pages"
		if honest != (rep.Verdict == "verified" && rep.Untrue == nil) {
			t.Errorf("%s: %s", r.name, want)
		}
		if r.pages > 1 && len(rep.Signed) != r.pages {
			t.Errorf("%s: %d signed on %d pages", r.name, len(rep.Signed), r.pages)
		}
		if rep.Records > 100 && a.Told < 2 {
			t.Errorf("%s: progress was told %d times", r.name, a.Told)
		}
	}
}

func equal(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// A list of what is signed that does not end is looked at up to a bound, and the report says that there is more; one that leads nowhere is no list.
func TestBoundsOfSigned(t *testing.T) {
	b := inspecttest.Room(4, true)
	whole := b.Serve()
	page := slices.Concat([]byte("["), b.Announce(3, nil), bytes.Repeat(slices.Concat([]byte(","), b.Announce(4, nil)), 199), []byte("]"))
	lists := func(next func(cursor int) int) string {
		return start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, "/v1/witness/") {
				whole.ServeHTTP(w, r)
				return
			}
			cursor, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
			w.Header().Set("Link", fmt.Sprintf(`<%s?cursor=%d>; rel="next"`, r.URL.Path, next(cursor)))
			_, _ = w.Write(page)
		}))
	}
	endless, circle := lists(func(n int) int { return n + 1 }), lists(func(int) int { return 1 })
	request := func(url string) map[string]any {
		return map[string]any{"room": url + "/v1/rooms/" + inspecttest.RoomID, "id": inspecttest.RoomID, "signed": []string{url + "/v1/witness/statements?room_id=x"}}
	}
	all := work(t, []map[string]any{request(endless), request(circle)})
	var rep inspect.Report
	if err := json.Unmarshal(all[0].Report, &rep); err != nil {
		t.Fatalf("%v: %s", err, all[0].Error)
	}
	if len(rep.Signed) != 2000 || !rep.MoreSigned || rep.Untrue != nil {
		t.Errorf("endless: %d signed, more %v, %q", len(rep.Signed), rep.MoreSigned, rep.Untrue)
	}
	if all[1].Report != nil || !strings.Contains(all[1].Error, "leads nowhere") {
		t.Errorf("a circle: %s %q", all[1].Report, all[1].Error)
	}
}

// A daemon that does not answer, or answers with something else, leaves no verdict: the reader is told that nothing was checked.
func TestNoVerdictWithoutAnswers(t *testing.T) {
	b := inspecttest.Room(10, true)
	request := func(url string) map[string]any {
		return map[string]any{"room": url + "/v1/rooms/" + inspecttest.RoomID, "id": inspecttest.RoomID, "signed": []string{}}
	}
	gone := start(t, http.NotFoundHandler())
	text := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<!doctype html>") }))
	cut := b.Serve()
	short := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".jsonl") {
			w.Header().Set("Content-Length", strconv.Itoa(len(cut.Bundle)))
			_, _ = w.Write(cut.Bundle[:len(cut.Bundle)/2])
			return
		}
		cut.ServeHTTP(w, r)
	}))
	redirect := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, text, http.StatusFound) }))
	for i, a := range work(t, []map[string]any{request(gone), request(text), request(short), request(redirect)}) {
		want := []string{"status 404", "the answer of", "was cut off", "cannot be read"}[i]
		if a.Report != nil || !strings.Contains(a.Error, want) {
			t.Errorf("%s: %s %q", want, a.Report, a.Error)
		}
	}
}
