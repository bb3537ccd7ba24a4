package page

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/web"
)

const (
	start    = 1_800_000_000_000
	roomID   = "d8ftedhpqhsusbg001tg"
	theHost  = "rooms.example"
	thePlace = "/rooms/" + theHost + "/" + roomID
)

// world is a Source of things made up.
type world struct {
	t      *testing.T
	self   Self
	rooms  []RoomItem
	asked  url.Values // of the last search
	next   string
	facets []Facet
	said   []Said
	room   *Room
	log    *records
	hosts  []Host
	signed map[string][][]byte
	stats  []Sample
	fails  error
	keys   map[string]ed25519.PrivateKey
}

// records are those of one room.
type records struct {
	list    []*adp.Record
	dropped int64
	read    int // records that were given out
}

func (l *records) Read(after int64, limit, maxBytes int) (out [][]byte, err error) {
	if after < l.dropped {
		return nil, adp.Errorf(adp.Gone, "the records up to seq %d are not kept here any more", l.dropped)
	}
	size := 0
	for _, r := range l.list[min(after, int64(len(l.list))):] {
		if size += len(r.JSON()); len(out) == limit || size > maxBytes && len(out) > 0 {
			break
		}
		out = append(out, r.JSON())
	}
	l.read += len(out)
	return out, nil
}

func (l *records) SeqOf(hash string) (int64, bool) {
	for _, r := range l.list {
		if r.Envelope.Hash == hash {
			return r.Seq, true
		}
	}
	return 0, false
}

func (w *world) Self(context.Context) (Self, error) { return w.self, w.fails }
func (w *world) Rooms(_ context.Context, q url.Values) (*RoomList, error) {
	w.asked = q
	return &RoomList{Rooms: w.rooms, Facets: w.facets, Next: w.next, Total: int64(len(w.rooms))}, w.fails
}
func (w *world) Said(context.Context, url.Values) ([]Said, error) { return w.said, w.fails }
func (w *world) Room(_ context.Context, authority, id string) (*Room, error) {
	if w.fails != nil {
		return nil, w.fails
	}
	if authority != theHost || id != roomID {
		return nil, adp.Errorf(adp.RoomNotFound, "there is no such room here, or you may not read it")
	}
	r := *w.room
	r.Seq = int64(len(w.log.list))
	r.Dropped = w.log.dropped
	if r.Seq > 0 {
		r.Hash = w.log.list[r.Seq-1].Hash
	}
	return &r, nil
}
func (w *world) Hosts(context.Context) ([]Host, error) { return w.hosts, w.fails }
func (w *world) Host(_ context.Context, authority string) (*Host, error) {
	for i := range w.hosts {
		if w.hosts[i].Authority == authority {
			return &w.hosts[i], nil
		}
	}
	return nil, adp.Errorf(adp.NotFound, "no such host")
}
func (w *world) Signed(_ context.Context, kind string, _ url.Values) ([][]byte, string, error) {
	return w.signed[kind], w.next, w.fails
}
func (w *world) Log() (Log, error) {
	return Log{Origin: theHost + "/witan", Root: strings.Repeat("A", 43), Size: 3, Signs: true}, w.fails
}
func (w *world) Samples() []Sample { return w.stats }

// newWorld has one public room that is active, with its creation as the only record.
func newWorld(t *testing.T) *world {
	w := &world{t: t, log: &records{}, keys: map[string]ed25519.PrivateKey{}, signed: map[string][][]byte{}}
	w.self = Self{Origin: "https://" + theHost, Authority: theHost, AgentID: string(w.id("daemon")), Version: "test", Hosts: true, Own: 1, Started: start}
	w.room = &Room{Own: true, Origin: "https://" + theHost, Authority: theHost, ID: roomID, URL: "https://" + theHost + "/v1/rooms/" + roomID, API: "https://" + theHost + "/v1/rooms/" + roomID,
		Contract: &room.Contract{Topic: "A topic", Visibility: room.Public, StartTime: start, EndTime: start + 3_600_000}, Creator: w.id("ada"), CreatedAt: start, Status: room.Active,
		Members: []Member{{Agent: w.id("ada"), Role: "moderator"}, {Agent: w.id("ben"), Role: "speaker", Perspective: "archivist"}}, Readable: true, Records: w.log,
		Verdict: "verified", State: "following", Attested: "unattested"}
	w.say("ada", room.Create, map[string]any{"topic": "A topic", "visibility": "public", "start_time": start, "end_time": start + 3_600_000})
	w.room.Genesis = w.log.list[0].Hash
	return w
}

func (w *world) key(name string) ed25519.PrivateKey {
	if w.keys[name] == nil {
		seed := sha256.Sum256([]byte(name))
		w.keys[name] = ed25519.NewKeyFromSeed(seed[:])
	}
	return w.keys[name]
}

func (w *world) id(name string) adp.AgentID {
	return adp.NewAgentID(w.key(name).Public().(ed25519.PublicKey))
}

// say adds a record, and gives the hash of its envelope.
func (w *world) say(who, typ string, payload any, mentions ...adp.AgentID) string {
	w.t.Helper()
	seq := int64(len(w.log.list)) + 1
	d := adp.Draft{Protocol: adp.Protocol, Type: typ, CreatedAt: start + seq, Nonce: seq, Payload: payload, Mentions: mentions}
	pre := ""
	if seq > 1 {
		pre = w.log.list[seq-2].Hash
		d.RoomID, d.BaseSeq, d.BaseHash = roomID, 1, w.log.list[0].Hash
	}
	e, err := adp.Sign(w.key(who), d)
	if err != nil {
		w.t.Fatal(err)
	}
	w.log.list = append(w.log.list, adp.NewRecord(e, roomID, seq, pre, start+1000*seq))
	return e.Hash
}

func (w *world) text(who, text string) string {
	return w.say(who, room.Message, map[string]any{"content_type": "text/plain", "content": text})
}

func (w *world) markdown(who, text string) string {
	return w.say(who, room.Message, map[string]any{"content_type": "text/markdown", "content": text})
}

// handler is the whole face, as the daemon puts it together.
func (w *world) handler() http.Handler {
	s := New(Options{Source: w, Now: func() int64 { return start }})
	mux := web.NewMux()
	s.Routes(mux)
	mux.Handle("GET", "/", s.ServeFront)
	return s.Errors(mux)
}

// get asks as a browser does.
func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
	out := httptest.NewRecorder()
	h.ServeHTTP(out, r)
	return out
}

// page gets a page that must be there and be sound, and gives its tree.
func (w *world) page(path string) *html.Node {
	w.t.Helper()
	out := get(w.t, w.handler(), path)
	if out.Code != http.StatusOK {
		w.t.Fatalf("GET %s: %d %s", path, out.Code, out.Body)
	}
	return sound(w.t, out.Body.String())
}

// find lists the elements that match.
func find(n *html.Node, match func(*html.Node) bool) (found []*html.Node) {
	for x := range n.Descendants() {
		if x.Type == html.ElementNode && match(x) {
			found = append(found, x)
		}
	}
	return found
}

func byID(t *testing.T, n *html.Node, id string) *html.Node {
	t.Helper()
	all := find(n, func(x *html.Node) bool { return attr(x, "id") == id })
	if len(all) != 1 {
		t.Fatalf("%d elements have the id %q", len(all), id)
	}
	return all[0]
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for x := range n.Descendants() {
		if x.Type == html.TextNode {
			b.WriteString(x.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// ours are the elements that a page may have.
var ours = map[string]bool{}

func init() {
	for _, name := range strings.Fields(`html head meta title link script body a header nav ul ol li main footer p div svg path circle rect h1 h2 h3 h4 h5 h6 span code pre
		details summary dl dt dd section article aside form label input select option button progress table thead tbody tr th td figure figcaption time bdi q cite em strong del mark
		blockquote br hr`) {
		ours[name] = true
	}
}

// sound judges a page as a wall against what agents write: no element, attribute
// or address in it that could run, load or turn anything.
func sound(t *testing.T, text string) *html.Node {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for n := range doc.Descendants() {
		if n.Type == html.TextNode {
			if i := strings.IndexFunc(n.Data, hidden); i >= 0 {
				t.Errorf("a hidden character is obeyed: %q", n.Data[i:min(len(n.Data), i+20)])
			}
			continue
		}
		if n.Type != html.ElementNode {
			continue
		}
		if !ours[n.Data] {
			t.Errorf("element <%s> in the page", n.Data)
		}
		words := attr(n, "type") == "application/json" && attr(n, "id") == "verify-words" // data, which no browser runs
		if n.Data == "script" && !words && (n.FirstChild != nil || !strings.HasPrefix(attr(n, "src"), "/static/")) {
			t.Errorf("a script that is not one of ours: %v", n.Attr)
		}
		if id := attr(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("two elements have the id %q", id)
			}
			ids[id] = true
		}
		for _, a := range n.Attr {
			name := strings.ToLower(a.Key)
			switch {
			case strings.HasPrefix(name, "on"), name == "style", name == "srcset", name == "formaction", name == "ping", name == "target", name == "srcdoc":
				t.Errorf("<%s> has the attribute %s=%q", n.Data, a.Key, a.Val)
			case name == "href" || name == "src" || name == "action":
				address(t, n, a.Val)
			}
			if strings.ContainsFunc(a.Val, hidden) {
				t.Errorf("<%s %s> holds a hidden character: %q", n.Data, a.Key, a.Val)
			}
		}
	}
	return doc
}

func address(t *testing.T, n *html.Node, to string) {
	u, err := url.Parse(to)
	switch {
	case err != nil:
		t.Errorf("<%s> leads to %q: %v", n.Data, to, err)
	case u.Scheme == "" && u.Host == "": // of this daemon
	case n.Data == "a" && (u.Scheme == "https" || u.Scheme == "http" || u.Scheme == "mailto"):
		if attr(n, "rel") != linkRel {
			t.Errorf("a link to %q has rel=%q", to, attr(n, "rel"))
		}
		if strings.ContainsFunc(u.Host, func(r rune) bool { return r > 0x7f }) {
			t.Errorf("a link to the host %q, which is not written as machines read it", u.Host)
		}
	default:
		t.Errorf("<%s> leads to %q", n.Data, to)
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
