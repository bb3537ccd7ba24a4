package replica

import (
	"bytes"
	"context"
	"crypto/sha3"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

const roomURL = testOrigin + "/v1/rooms/" + testRoom

// ended is a room with a conversation that is over.
func ended(t testing.TB) *story {
	s := begin(t, nil).upTo(300)
	s.add(alice, room.Close, obj{"reason": "done"})
	return s
}

// merkle is RFC 6962, §2.1, as it stands there.
func merkle(leaves [][]byte) []byte {
	if len(leaves) == 1 {
		return sha256Sum(0, leaves[0])
	}
	k := 1
	for k*2 < len(leaves) {
		k *= 2
	}
	return sha256Sum(1, merkle(leaves[:k]), merkle(leaves[k:]))
}

func bundleOf(t *testing.T, r *Replica) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteBundle(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// All that a manifest says is recomputed here from the records alone.
func TestMakeArchive(t *testing.T) {
	s := ended(t)
	set := openSet(t, memory(t))
	r := keep(t, set, s)
	at := s.recs[len(s.recs)-1].ReceivedAt
	manifest, err := r.MakeArchive(t.Context(), roomURL, s.now, at)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Protocol, Type, Host, URL string
		RoomID                    string `json:"room_id"`
		GeneratedAt               int64  `json:"generated_at"`
		EventCount                int    `json:"event_count"`
		FirstSeq                  int    `json:"first_seq"`
		LastSeq                   int    `json:"last_seq"`
		LastHash                  string `json:"last_hash"`
		Events                    string `json:"events_sha3_256"`
		Root                      string `json:"archive_root"`
		Formats                   map[string]string
		Room                      struct{ ID, Status string }
		Packs                     []json.RawMessage
		Extra                     struct {
			EventsCID   string `json:"events_cid"`
			BundleCID   string `json:"bundle_cid"`
			BundleBytes int    `json:"bundle_bytes"`
			Merkle      struct {
				Tree string
				Size int
			}
		}
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		t.Fatal(err)
	}
	n := len(s.recs)
	var whole [][]byte
	var leaves [][]byte
	for _, rec := range s.recs {
		h := rec.LeafData()
		whole, leaves = append(whole, rec.JSON()), append(leaves, h[:])
	}
	events := sha3.Sum256([]byte("[" + string(bytes.Join(whole, []byte(","))) + "]"))
	if m.Protocol != adp.Protocol || m.Type != "room.archive" || m.Host != "h.example" || m.URL != roomURL || m.RoomID != testRoom || m.GeneratedAt != at || m.EventCount != n ||
		m.FirstSeq != 1 || m.LastSeq != n || m.LastHash != s.recs[n-1].Hash || m.Room.ID != testRoom || m.Room.Status != "ended" {
		t.Errorf("manifest %s", manifest)
	}
	if m.Events != adp.Encode(events[:]) || m.Root != adp.Encode(merkle(leaves)) || m.Extra.EventsCID != adp.NewCID(adp.CodecJSON, events) || m.Extra.Merkle.Tree != "rfc6962-sha256" || m.Extra.Merkle.Size != n {
		t.Errorf("digests of %s", manifest)
	}
	if m.Formats["jsonl"] != roomURL+"/archive.jsonl" || m.Formats["markdown"] != roomURL+"/archive.md" || len(m.Packs) != 1 || !strings.Contains(string(m.Packs[0]), "reaction.create") {
		t.Errorf("formats %v, packs %s", m.Formats, m.Packs)
	}
	bundle := bundleOf(t, r)
	if m.Extra.BundleBytes != len(bundle) || m.Extra.BundleCID != adp.NewCID(adp.CodecRaw, sha3.Sum256(bundle)) {
		t.Errorf("bundle of %d bytes; the manifest says %d", len(bundle), m.Extra.BundleBytes)
	}
	line1, rest, _ := bytes.Cut(bundle, []byte("\n"))
	if want := string(bytes.Join(whole, []byte("\n"))) + "\n"; string(rest) != want {
		t.Error("the bundle's records are not the log")
	}
	var got, want map[string]any
	if err := errors.Join(json.Unmarshal(line1, &got), json.Unmarshal(manifest, &want)); err != nil {
		t.Fatal(err)
	}
	extra := want["extra"].(map[string]any)
	delete(extra, "bundle_cid")
	delete(extra, "bundle_bytes")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("line 1 is %s", line1)
	}
	if again, err := r.MakeArchive(t.Context(), "https://other.example", s.now+1, at+1); err != nil || !bytes.Equal(again, manifest) {
		t.Errorf("a second call: %s, %v", again, err)
	}
	if !r.Row().Archived {
		t.Error("the row does not say so")
	}
	// mirrors that make it themselves agree byte for byte
	other := keep(t, openSet(t, memory(t)), s)
	if m2, err := other.MakeArchive(t.Context(), roomURL, s.now+hour, at); err != nil || !bytes.Equal(m2, manifest) || !bytes.Equal(bundleOf(t, other), bundle) {
		t.Errorf("another mirror made %s, %v", m2, err)
	}
}

func TestMakeArchiveOnceUnderContention(t *testing.T) {
	s := ended(t)
	r := keep(t, openSet(t, memory(t)), s)
	var wg sync.WaitGroup
	answers := make([]string, 8)
	for i := range answers {
		wg.Go(func() {
			m, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now+int64(i))
			if err != nil {
				t.Error(err)
			}
			answers[i] = string(m)
		})
	}
	wg.Wait()
	for _, a := range answers {
		if a != answers[0] {
			t.Errorf("two archives of one room:\n%s\n%s", a, answers[0])
		}
	}
}

func TestNoArchiveBeforeTheEnd(t *testing.T) {
	s := begin(t, nil).upTo(5)
	r := keep(t, openSet(t, memory(t)), s)
	if _, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now); !errors.Is(err, ErrNotEnded) {
		t.Errorf("make: %v", err)
	}
	if err := r.WriteBundle(&bytes.Buffer{}); !errors.Is(err, ErrNotEnded) {
		t.Errorf("bundle: %v", err)
	}
	for name, serve := range serving(r, s.now) {
		if err := serve(httptest.NewRecorder()); adp.CodeOf(err) != adp.RoomNotActive {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.MakeArchive(t.Context(), roomURL, t0+hour, t0+hour); err != nil {
		t.Errorf("once time has ended it: %v", err)
	}
	for name, serve := range serving(r, t0+hour) {
		w := httptest.NewRecorder()
		if err := serve(w); err != nil || w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: %d, %v", name, w.Code, err)
		}
	}
}

func serving(r *Replica, now int64) map[string]func(http.ResponseWriter) error {
	req := httptest.NewRequestWithContext(context.Background(), http.MethodGet, roomURL+"/archive", nil)
	return map[string]func(http.ResponseWriter) error{
		"manifest": func(w http.ResponseWriter) error { return r.ServeManifest(w, req, true) },
		"bundle":   func(w http.ResponseWriter) error { return r.ServeBundle(w, req, true) },
		"markdown": func(w http.ResponseWriter) error { return r.ServeMarkdown(w, req, roomURL, now, true) },
	}
}

// A mirror keeps the host's archive byte for byte, if it fits the records.
func TestAdoptArchive(t *testing.T) {
	s := ended(t)
	host := keep(t, openSet(t, memory(t)), s)
	manifest, err := host.MakeArchive(t.Context(), roomURL, s.now, s.now+5)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(text []byte) *adp.Claim {
		t.Helper()
		c, err := adp.ParseClaim(text)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	alter := func(from, to string) []byte {
		t.Helper()
		re := regexp.MustCompile(from)
		if !re.Match(manifest) {
			t.Fatalf("%s is not in the manifest", from)
		}
		return re.ReplaceAll(manifest, []byte(to))
	}
	r := keep(t, openSet(t, memory(t)), s)
	none := adp.Encode(make([]byte, 32))
	for name, text := range map[string][]byte{
		"count": alter(`"event_count":301`, `"event_count":300`), "last_seq": alter(`"last_seq":301`, `"last_seq":300`),
		"last_hash": alter(`"last_hash":"[^"]*"`, `"last_hash":"`+none+`"`), "digest": alter(`"events_sha3_256":"[^"]*"`, `"events_sha3_256":"`+none+`"`),
		"root": alter(`"archive_root":"[^"]*"`, `"archive_root":"`+none+`"`), "events_cid": alter(`"events_cid":"[^"]*"`, `"events_cid":"`+adp.NewCID(adp.CodecJSON, [32]byte{})+`"`),
		"bundle_cid": alter(`"bundle_cid":"[^"]*"`, `"bundle_cid":"`+adp.NewCID(adp.CodecRaw, [32]byte{})+`"`), "bundle_bytes": alter(`"bundle_bytes":\d+`, `"bundle_bytes":1`),
		"room_id": alter(`"room_id":"[^"]*"`, `"room_id":"other"`), "a word in the room resource": alter(`"topic":"Quorum"`, `"topic":"Quarum"`),
	} {
		if err := r.AdoptArchive(t.Context(), claim(text)); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
		if _, ok, err := r.Manifest(); ok || err != nil || r.Row().Archived {
			t.Errorf("%s: an archive that does not fit was kept (%v)", name, err)
		}
	}
	for range 2 { // again is no error
		if err := r.AdoptArchive(t.Context(), claim(manifest)); err != nil {
			t.Fatal(err)
		}
	}
	if m, ok, err := r.Manifest(); !ok || err != nil || !bytes.Equal(m, manifest) {
		t.Errorf("manifest %s, %v", m, err)
	}
	if !bytes.Equal(bundleOf(t, r), bundleOf(t, host)) || !r.Row().Archived {
		t.Error("the bundle is not that of the host")
	}
	third := keep(t, openSet(t, memory(t)), s)
	other, err := third.MakeArchive(t.Context(), roomURL, s.now, s.now+6)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.AdoptArchive(t.Context(), claim(other)); !errors.Is(err, ErrExists) {
		t.Errorf("another archive: %v", err)
	}
	if m, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now); err != nil || !bytes.Equal(m, manifest) {
		t.Errorf("make after adopt: %s, %v", m, err)
	}
	// what the host adds to a closed room is a violation, and not in its archive
	before := bundleOf(t, r)
	s.add(alice, room.Message, say("late"))
	done := make(chan error, 1)
	if err := r.Take(func(turn *Turn) error {
		return turn.Append(s.recs[301], s.chs[301], nil, func(err error) { done <- err })
	}); err != nil {
		t.Fatal(err)
	}
	wait(t, done, 1)
	if !bytes.Equal(bundleOf(t, r), before) {
		t.Error("the bundle grew")
	}
}

type cut struct{ left int }

func (c *cut) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		return 0, errors.New("the reader is gone")
	}
	return len(b), nil
}

// An answer that cannot be finished does not end like one that is whole.
func TestCutAnswersAbort(t *testing.T) {
	s := ended(t)
	r := keep(t, openSet(t, memory(t)), s)
	if _, err := r.MakeArchive(t.Context(), roomURL, s.now, s.now); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteBundle(&cut{left: 5000}); err == nil {
		t.Error("a write that failed was not told")
	}
	for _, name := range []string{"bundle", "markdown"} {
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("%s: %v", name, p)
				}
			}()
			_ = serving(r, s.now)[name](&cutResponse{httptest.NewRecorder(), cut{left: 5000}})
		}()
	}
}

type cutResponse struct {
	*httptest.ResponseRecorder
	cut cut
}

func (c *cutResponse) Write(b []byte) (int, error) { return c.cut.Write(b) }

// Whatever agents write stays inside of a quotation or a fence.
func TestMarkdownQuotesWhatIsHostile(t *testing.T) {
	s := begin(t, obj{"topic": "T\n# forged\r<script>", "agenda": "a\n\n# forged agenda\r## forged\u2028# forged", "guidance": "g\r\n# forged", "language": "en\n# forged", "tags": []string{"x\n# forged"}})
	s.add(alice, room.Message, say("# forged\n## 9 · room.close\n\n```\n<script>alert(1)</script>\r# forged\u2029# forged\x0b# forged"))
	s.add(alice, room.Message, obj{"content_type": "application/json", "content": obj{"a": "```\n# forged\n````json"}})
	s.add(alice, "a.sign", obj{"x": "`````\n# forged"})
	s.add(alice, room.Close, obj{"reason": "\n# forged"})
	r := keep(t, openSet(t, memory(t)), s)
	var b bytes.Buffer
	if err := r.WriteMarkdown(t.Context(), &b, roomURL, s.now); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if !strings.HasPrefix(text, "# T # forged <script>\n\n- Room: "+roomURL+"\n- Status: ended\n") {
		t.Errorf("begins with %.200s", text)
	}
	ours := regexp.MustCompile(`^(# T # forged <script>|## \d+ · [a-z.]+|- [A-Z][a-z]+: [^\r\n]*|\*\*(Agenda|Guidance)\*\*|> .*|did:agent:[A-Za-z0-9_-]{43}, [0-9 :-]+ UTC|)$`)
	fence := ""
	headings := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case fence != "":
			if line == fence {
				fence = ""
			} else if strings.HasPrefix(line, fence) {
				t.Errorf("a fence may end at %q", line)
			}
		case strings.HasPrefix(line, "```"):
			fence = strings.TrimSuffix(line, "json")
		case !ours.MatchString(line):
			t.Errorf("line %q is not ours and not quoted", line)
		case strings.HasPrefix(line, "## "):
			headings++
		}
	}
	if fence != "" || headings != len(s.recs) {
		t.Errorf("fence %q is open, %d headings", fence, headings)
	}
	if strings.ContainsAny(text, "\r\x0b\u2028\u2029") {
		t.Error("something that may end a line went through")
	}
}
