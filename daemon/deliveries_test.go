package daemon

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/webhook"
)

// post is a request to a receiver, as it came.
type post struct {
	header http.Header
	body   []byte
	event  string
}

// catcher passes each challenge and keeps all that is posted.
type catcher struct {
	*httptest.Server
	mu  sync.Mutex
	all []post
}

func catch(t *testing.T) *catcher {
	c := &catcher{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var e struct{ Event, Challenge string }
		if err := json.Unmarshal(body, &e); err != nil {
			t.Errorf("%v: %s", err, body)
		}
		c.mu.Lock()
		c.all = append(c.all, post{r.Header.Clone(), body, e.Event})
		c.mu.Unlock()
		if e.Event == webhook.Ping {
			_ = json.NewEncoder(w).Encode(map[string]string{"challenge": e.Challenge})
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *catcher) posts() []post {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// has tells whether an event came, with this text in it.
func (c *catcher) has(event, text string) bool {
	return slices.ContainsFunc(c.posts(), func(p post) bool { return p.event == event && bytes.Contains(p.body, []byte(text)) })
}

// What a daemon posts to webhooks is as it is described, header and body, of every kind of event.
func TestDeliveriesAreAsDescribed(t *testing.T) {
	a := start(t, setup{})
	const queue = 40
	d := start(t, setup{mirrors: []string{a.origin}, change: func(c *config.Config) {
		c.Webhook.Queue, c.Limits.MessagePerMinute = queue, 10*queue
		c.Mirror.BackoffMin, c.Mirror.PollMax = config.Duration(50*time.Millisecond), config.Duration(time.Second)
	}})
	bot := catch(t)
	register := func(events []string) (id string) {
		var h struct{ ID string }
		if status, _ := d.operate("POST", "/webhooks", map[string]any{"url": bot.URL, "events": events}, &h); status != http.StatusOK {
			t.Fatal(status)
		}
		return h.ID
	}
	register(slices.DeleteFunc(slices.Clone(webhook.Events), func(e string) bool { return e == webhook.Mention }))
	mentions := register([]string{webhook.Mention})
	wait := func(event, text string) {
		t.Helper()
		until(t, event+" with "+text, func() bool { return bot.has(event, text) })
	}

	me := newAgent(t)
	theirs := a.create(me, nil)
	wait(webhook.RoomStarted, theirs)
	a.mention(me, theirs, "to myself")
	wait(webhook.Mention, theirs)
	a.act(me, theirs, "room.close", map[string]any{})
	wait(webhook.RoomEnded, theirs)
	wait(webhook.ArchiveAttested, theirs)

	// more than fits into a queue
	if status, _ := d.operate("POST", "/webhooks/"+mentions+"/pause", nil, nil); status != http.StatusOK {
		t.Fatal(status)
	}
	own := d.create(me, nil)
	for range queue + 3 {
		d.mention(me, own, "still there?")
	}
	until(t, "events that are dropped", func() bool {
		var h struct{ Missed int }
		d.operate("GET", "/webhooks/"+mentions, nil, &h)
		return h.Missed > 0
	})
	d.operate("POST", "/webhooks/"+mentions+"/resume", nil, nil)
	until(t, "what has waited", func() bool {
		var h struct{ Waiting int }
		d.operate("GET", "/webhooks/"+mentions, nil, &h)
		return h.Waiting == 0
	})
	d.mention(me, own, "again")
	wait(webhook.Gap, "missed")

	// a host that comes back from an older copy, and goes on with another story
	told := a.create(me, nil)
	wait(webhook.RoomDiscovered, told)
	port := a.port()
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(a.data)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(old, "key"), 0o600); err != nil {
		t.Fatal(err)
	}
	a = start(t, setup{data: a.data, port: port})
	a.act(me, told, "message.create", text("one story"))
	held := func(n int) bool {
		var events []json.RawMessage
		d.call("GET", "/m/"+authority(a.origin)+"/v1/rooms/"+told+"/events", nil, &events)
		return len(events) == n
	}
	until(t, "the first story", func() bool { return held(2) })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	wait(webhook.HostState, "backing-off")
	a = start(t, setup{data: old, port: port})
	a.act(me, told, "message.create", text("another story"))
	wait(webhook.RoomForked, "another story")

	hold := deliveries(t, d)
	seen := map[string]int{}
	for _, p := range bot.posts() {
		hold.check(p)
		seen[p.event]++
	}
	for event := range hold.hooks {
		if seen[event] == 0 {
			t.Errorf("%s is described, and was not posted", event)
		}
	}
	// what is refused is seen to be refused
	for name, change := range map[string]func(*post, map[string]any){
		"a member that nobody described": func(_ *post, b map[string]any) { b["secret"] = "x" },
		"a member too few":               func(_ *post, b map[string]any) { delete(b, "room") },
		"a header too few":               func(p *post, _ map[string]any) { p.header.Del(webhook.HeaderSignature) },
		"another event":                  func(p *post, _ map[string]any) { p.header.Set(webhook.HeaderEvent, webhook.Ping) },
	} {
		i := slices.IndexFunc(bot.posts(), func(p post) bool { return p.event == webhook.RoomEnded })
		p := bot.posts()[i]
		p.header = p.header.Clone()
		var b map[string]any
		if err := json.Unmarshal(p.body, &b); err != nil {
			t.Fatal(err)
		}
		change(&p, b)
		var err error
		if p.body, err = json.Marshal(b); err != nil {
			t.Fatal(err)
		}
		if hold.faults(p) == "" {
			t.Errorf("%s passes", name)
		}
	}
}

// described deliveries of a daemon.
type deliveryCheck struct {
	x     *described
	hooks map[string]struct {
		Post struct {
			Parameters []struct {
				Ref  string `json:"$ref"`
				Name string
			}
		}
	}
}

func deliveries(t *testing.T, d *running) *deliveryCheck {
	t.Helper()
	c := &deliveryCheck{x: describe(t, d)}
	_, _, raw := d.call("GET", "/openapi.json", nil, nil)
	doc := struct{ Webhooks any }{&c.hooks}
	if err := json.Unmarshal(raw, &doc); err != nil || len(c.hooks) == 0 {
		t.Fatalf("%d deliveries are described: %v", len(c.hooks), err)
	}
	return c
}

func (c *deliveryCheck) check(p post) {
	c.x.t.Helper()
	if why := c.faults(p); why != "" {
		c.x.t.Errorf("%s is not as described: %s\n%v\n%.800s", p.event, why, p.header, p.body)
	}
}

// faults says how a delivery differs from its description.
func (c *deliveryCheck) faults(p post) string {
	at := "/webhooks/" + p.event + "/post"
	hook, ok := c.hooks[p.event]
	if !ok {
		return "nobody has described it"
	}
	names := []string{}
	for i, param := range hook.Post.Parameters {
		pointer := at + "/parameters/" + string(rune('0'+i))
		if param.Ref != "" {
			pointer = strings.TrimPrefix(param.Ref, "#")
			param.Name, _ = c.x.component(param.Ref)["name"].(string)
		}
		names = append(names, param.Name)
		if len(p.header.Values(param.Name)) != 1 {
			return "the header " + param.Name + " is not there once"
		}
		if err := c.compile(pointer + "/schema").Validate(p.header.Get(param.Name)); err != nil {
			return "the header " + param.Name + ": " + err.Error()
		}
	}
	for name := range p.header {
		if strings.HasPrefix(name, "Witan-") && !slices.Contains(names, name) {
			return "the header " + name + " is not described"
		}
	}
	if p.header.Get("Content-Type") != "application/json" {
		return "Content-Type " + p.header.Get("Content-Type")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(p.body))
	if err == nil {
		err = c.compile(at + "/requestBody/content/application~1json/schema").Validate(v)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func (c *deliveryCheck) compile(pointer string) *jsonschema.Schema {
	s, err := c.x.schemas.Compile(document + "#" + pointer)
	if err != nil {
		c.x.t.Fatal(err)
	}
	return s
}
