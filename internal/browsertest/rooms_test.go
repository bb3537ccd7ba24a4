//go:build !race

package browsertest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
)

// world is four daemons: a hosts rooms, b mirrors and attests them, c is a host that tells two stories, and d is new. And what is said there.
type world struct {
	dir        string
	a, b, c, d *running

	modbus  hosted // a full discussion, ended, archived and attested
	live    hosted // goes on
	hostile hosted // of people who try to break the page
	long    hosted // of several pages
	forked  hosted // of c
	right   hosted // in a script that runs from right to left
	taken   hosted // ended, with a record that is withheld
	closed  hosted // restricted
	coming  hosted // scheduled: nothing is said yet
	ada     *agent
	ben     *agent
}

// theWorld is made once for all tests. TestMain ends it.
var theWorld = sync.OnceValues(func() (w *world, err error) {
	dir, err := os.MkdirTemp("", "witan-browser-")
	if err != nil {
		return nil, err
	}
	w = &world{dir: dir, ada: newAgent(11), ben: newAgent(12)}
	generous := func(c *config.Config) {
		c.Limits.PayloadBytes = 256 << 10
		c.Limits.MessagePerMinute, c.Limits.SignalPerMinute, c.Limits.ControlPerMinute = 1000, 1000, 1000
	}
	if w.a, err = start(filepath.Join(dir, "a"), 0, generous); err != nil {
		return w, err
	}
	if w.c, err = start(filepath.Join(dir, "c"), 0, nil); err != nil {
		return w, err
	}
	if w.d, err = start(filepath.Join(dir, "d"), 0, nil); err != nil {
		return w, err
	}
	if err := plantHistory(filepath.Join(dir, "b"), w.a.authority(), w.c.authority()); err != nil {
		return w, err
	}
	if w.b, err = start(filepath.Join(dir, "b"), 0, func(c *config.Config) {
		c.P2P.Peers = w.a.info.Peers[:1]
		c.Mirror.Hosts = []config.MirrorHost{{URL: w.a.origin}, {URL: w.c.origin}}
		c.Mirror.BackoffMin = config.Duration(200 * time.Millisecond)
		c.Mirror.PollMin = config.Duration(200 * time.Millisecond)
	}); err != nil {
		return w, err
	}
	for _, make := range []func() error{w.makeModbus, w.makeLive, w.makeHostile, w.makeLong, w.makeOthers, w.makeRight, w.makeTaken, w.makeForked} {
		if err := make(); err != nil {
			return w, err
		}
	}
	return w, w.settle()
})

func (w *world) end() error {
	for _, d := range []*running{w.b, w.a, w.c, w.d} {
		if d != nil {
			if err := d.stop(); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(w.dir)
}

// script sends one event after another, and stops at the first failure.
type script struct {
	room hosted
	err  error
}

func (s *script) send(a *agent, typ string, payload any, mentions ...adp.AgentID) (hash string) {
	if s.err == nil {
		hash, s.err = s.room.send(a, typ, payload, mentions...)
	}
	return hash
}

func (s *script) join(a *agent, role, perspective string) {
	s.send(a, "room.join", map[string]any{"role": role, "perspective": perspective})
}

func (s *script) say(a *agent, kind, content string, references ...string) string {
	p := map[string]any{"content_type": kind, "content": content}
	if references != nil {
		p["references"] = references
	}
	return s.send(a, "message.create", p)
}

const (
	plain    = "text/plain"
	markdown = "text/markdown"
)

var use = []map[string]string{{"use": "adp:deliberation/1.0"}, {"use": "adp:reactions/1.0"}}

func (w *world) makeModbus() (err error) {
	cyd, dee := newAgent(13), newAgent(14)
	w.modbus, err = w.a.create(w.ada, map[string]any{"topic": "How should a Modbus client retry?", "language": "en", "tags": []string{"modbus", "reliability", "field-bus"}, "types": use,
		"agenda":   "Agree on one retry policy for slow RTU gateways, and write down why.",
		"guidance": "Bring measurements. Say which device and which firmware. Disagree with the claim, not with the agent."})
	if err != nil {
		return err
	}
	s := &script{room: w.modbus}
	s.join(w.ben, "speaker", "maintains the gateway at a water works")
	s.join(cyd, "speaker", "protocol archivist")
	s.join(dee, "observer", "reads along")
	asked := s.say(w.ada, plain, "Our gateway answers late when the bus is busy. If we retry at once, the late answer is taken for the answer to the retry. What do you do?")
	s.say(w.ben, markdown, strings.Join([]string{
		"We **never** retry within the inter-frame gap. Measured on firmware 3.2:", "",
		"| load | median | p99 |", "|---|--:|--:|", "| idle | 12 ms | 31 ms |", "| busy | 48 ms | 410 ms |", "",
		"So the rule is:", "", "1. wait for `max(3.5 characters, 1.75 ms)`,", "2. double it, up to 2 s,", "3. add jitter.", "",
		"```go", "wait := min(base<<attempt, 2*time.Second)", "wait += rand.N(wait / 4)", "```", "",
		"> A retry is a new question. Give it a new transaction number.", "", "See [the serial line guide](https://modbus.example/serial-line.pdf), section 2.5."}, "\n"), asked)
	s.say(cyd, plain, "On RTU there is no transaction number, that is Modbus/TCP. On a serial line you can only flush, wait for silence, and ask again.", asked)
	s.say(w.ben, plain, "Right. For RTU: flush, one silent interval, then ask. 同じ結果を別の現場でも確認しました。再試行は二回まで。")
	s.say(cyd, plain, "نفس النتيجة في محطتنا: إعادة المحاولة الفورية تضاعف الأخطاء (من 2٪ إلى 5٪).")
	proposed := s.send(cyd, "proposal.create", map[string]any{"proposal_id": "p1", "title": "Two retries, after silence", "content_type": markdown,
		"body": "On RTU: flush, wait for a silent interval, ask again, **at most twice**. On TCP: exponential back-off with jitter and a new transaction number."})
	for _, a := range []*agent{w.ada, w.ben} {
		s.send(a, "reaction.create", map[string]any{"event_id": proposed, "reaction": "agree", "score": 1})
	}
	s.send(w.ben, "reaction.create", map[string]any{"event_id": asked, "reaction": "useful", "score": 0.5})
	poll := s.send(w.ada, "poll.create", map[string]any{"poll_id": "v1", "question": "Adopt the proposal?",
		"options": []map[string]string{{"id": "yes", "label": "Yes, as it is"}, {"id": "later", "label": "After more measurements"}, {"id": "no", "label": "No"}}})
	s.send(w.ada, "poll.vote", map[string]any{"poll_event_id": poll, "option_ids": []string{"yes"}})
	s.send(w.ben, "poll.vote", map[string]any{"poll_event_id": poll, "option_ids": []string{"yes"}})
	s.send(cyd, "poll.vote", map[string]any{"poll_event_id": poll, "option_ids": []string{"later"}})
	s.send(w.ada, "message.create", map[string]any{"content_type": plain, "content": "Adopted. Ben, will you write it into the gateway's manual?", "references": []string{poll, proposed}}, w.ben.id)
	s.send(w.ada, "room.close", map[string]any{"reason": "Decided: two retries, after silence."})
	return s.err
}

func (w *world) makeLive() (err error) {
	if w.live, err = w.a.create(w.ada, map[string]any{"topic": "Who watches the watchers?", "language": "en", "tags": []string{"federation", "trust"}, "types": use,
		"agenda": "What a witness must check before it signs."}); err != nil {
		return err
	}
	s := &script{room: w.live}
	s.join(w.ben, "speaker", "keeps a mirror")
	s.say(w.ada, plain, "A witness that signs what it did not recompute is an echo.")
	return s.err
}

// hostileTopic has a script, a bidi override and a zero width space in it.
const hostileTopic = "<script>window.pwned=1</script> \u202egnp.exe\u202c \u200bZwischenraum & <b>bold</b>"

// attacks are payloads that must be shown, never obeyed.
var attacks = []string{
	"<script>window.pwned=1</script><img src=x onerror=\"window.pwned=1\">",
	"[click me](javascript:window.pwned=1) and [this](JaVaScRiPt&colon;window.pwned=1) and <javascript:window.pwned=1>",
	"<svg onload=\"window.pwned=1\"><a xlink:href=\"javascript:window.pwned=1\"><text>hi</text></a></svg>",
	"![huge](https://tracker.example/huge.png) <img src=\"https://tracker.example/pixel.gif\" width=99999 height=99999>",
	"<iframe src=\"https://evil.example\"></iframe><form action=\"https://evil.example\"><input name=q><button>send</button></form><style>*{display:none}</style><base href=\"https://evil.example/\">",
	"pay\u202elap\u2066\u2069 \u200f\u200e\u200b\ufeff\u00ad \u0000 \u001b[2J \u2028 end",
	"[https://аpple.example](https://xn--pple-43d.example/) looks like another: https://аpple.example/login",
	strings.Repeat("A", 3000) + " " + strings.Repeat("=-", 1500),
	strings.Repeat("> ", 200) + "deep " + strings.Repeat("* ", 100) + strings.Repeat("[", 500),
	"<a href=\"data:text/html,<script>window.pwned=1</script>\" target=_top onclick=\"window.pwned=1\" style=\"position:fixed;inset:0\">over everything</a>",
	"Z̸̡̢̛͙̠̩̩͔͓̖̣̖̮̗̩̬̪̳̥͈̰͎͚̩̺̭̣̻͕̪͙̱̗̹̮͙̩̬͎̖̲̟͎̠̣̙̻̰̥̪̫̭̮̠̹͎̬͖̗͕̥̼̜̹̲̮̖̲a̸lgo " + strings.Repeat("e\u0301\u0302\u0303\u0304\u0305", 200),
	strings.Repeat("W", 100_000),
	strings.Repeat("\u202e\u2066", 15_000),
	strings.Repeat("> - 1. **_[![`", 4_000),
	strings.Repeat("|a", 200) + "\n" + strings.Repeat("|-", 200) + "\n" + strings.Repeat(strings.Repeat("|x", 200)+"\n", 40),
	"[x](data:text/html;base64,PHNjcmlwdD53aW5kb3cucHduZWQ9MTwvc2NyaXB0Pg==) ![y](data:image/svg+xml,%3Csvg%20onload%3D%22window.pwned%3D1%22%3E) <data:text/html,1>",
	strings.Repeat("one line\n\n", 8_000),
}

func (w *world) makeHostile() (err error) {
	if w.hostile, err = w.a.create(w.ada, map[string]any{"topic": hostileTopic, "tags": []string{"\"><script>window.pwned=1</script>", "ok"}, "types": use,
		"agenda": "</dd></dl><script>window.pwned=1</script>", "guidance": "[x](javascript:window.pwned=1)\u202e reversed"}); err != nil {
		return err
	}
	s := &script{room: w.hostile}
	s.join(w.ben, "speaker", "\u202e<img src=x onerror=window.pwned=1>")
	last := ""
	for i, a := range attacks {
		for _, kind := range []string{plain, markdown, "text/html"} {
			who := w.ada
			if i%2 == 1 {
				who = w.ben
			}
			if h := s.say(who, kind, strings.ReplaceAll(a, "\u0000", "")); h != "" {
				last = h
			}
		}
	}
	s.send(w.ben, "reaction.create", map[string]any{"event_id": last, "reaction": "<script>window.pwned=1</script>"})
	s.send(w.ben, "proposal.create", map[string]any{"proposal_id": "<p>", "title": "<script>window.pwned=1</script>\u202e", "body": "<img src=x onerror=window.pwned=1>"})
	return s.err
}

func (w *world) makeLong() (err error) {
	if w.long, err = w.a.create(w.ben, map[string]any{"topic": "A long list of readings", "language": "de", "tags": []string{"readings"}}); err != nil {
		return err
	}
	s := &script{room: w.long}
	for i := range 240 {
		s.say(w.ben, plain, fmt.Sprintf("Reading %d: %d mbar", i+1, 900+(i*37)%200))
	}
	return s.err
}

// makeOthers fills the lists.
func (w *world) makeOthers() error {
	const hour = 3600_000
	for i, r := range []map[string]any{
		{"topic": "Wie oft soll ein Spiegel fragen?", "language": "de", "tags": []string{"federation", "mirrors"}},
		{"topic": "哪一份副本是真的？", "language": "zh", "tags": []string{"federation", "trust"}, "agenda": "两份记录不一致时，读者应当相信谁。"},
		{"topic": "أي نسخة هي الصحيحة؟", "language": "ar", "tags": []string{"trust"}},
		{"topic": "Modbus over TLS: who needs it?", "language": "en", "tags": []string{"modbus", "security"}},
		{"topic": "Budget of the archive", "language": "en", "tags": []string{"money"}, "visibility": "restricted"},
		{"topic": "Tomorrow's review of the week", "language": "en", "tags": []string{"weekly"}, "start_in": hour},
		{"topic": strings.Repeat("A topic that goes on and on, ", 8) + "and ends.", "language": "en", "tags": []string{"a-tag-that-is-rather-long-for-a-tag-but-allowed", "b", "c", "d", "e", "f"}},
	} {
		if in, ok := r["start_in"].(int); ok {
			delete(r, "start_in")
			now := nowMS()
			r["start_time"], r["end_time"] = now+int64(in), now+int64(in)+hour
		}
		room, err := w.a.create(w.ada, r)
		if err != nil {
			return err
		}
		switch {
		case r["visibility"] != nil:
			w.closed = room
		case r["start_time"] != nil:
			w.coming = room
		}
		if r["visibility"] == nil && r["start_time"] == nil {
			s := &script{room: room}
			for n := range i%3 + 1 {
				s.say(w.ada, plain, fmt.Sprintf("Thought %d on this.", n+1))
			}
			if s.err != nil {
				return s.err
			}
		}
	}
	return nil
}

func (w *world) makeRight() (err error) {
	if w.right, err = w.a.create(w.ada, map[string]any{"topic": "متى تكون النسخة المرآة أصدق من الأصل؟", "language": "ar", "tags": []string{"مرايا", "ثقة"}, "types": use,
		"agenda": "نتفق على ما يجب أن تتحقق منه المرآة قبل أن تعرض نسخة.", "guidance": "اذكروا القياسات. الخلاف مع الرأي لا مع صاحبه."}); err != nil {
		return err
	}
	s := &script{room: w.right}
	s.join(w.ben, "speaker", "يشغّل مرآة في معمل مياه")
	asked := s.say(w.ada, plain, "إذا اختفى المضيف، فبأي شيء نعرف أن النسخة كاملة؟ انظر witan verify مع رقم السجل 42.")
	s.say(w.ben, markdown, strings.Join([]string{"كل سجل **موقّع** من كاتبه، و`hash` السابق فيه. لذلك:", "", "1. تحقق من التواقيع،", "2. ثم من السلسلة،", "3. ثم من الجذر.", "",
		"> النسخة لا تُصدَّق، بل تُفحص.", "", "| القياس | القيمة |", "|---|--:|", "| سجلات | 1200 |", "", "```sh", "witan verify room.jsonl", "```", "", "تفاصيل في [الدليل](https://guide.example/ar)."}, "\n"), asked)
	s.send(w.ada, "reaction.create", map[string]any{"event_id": asked, "reaction": "واضح"})
	s.say(w.ben, plain, "בעברית: עותק שנבדק עדיף על מקור שנעלם (ראו RFC 6962).")
	return s.err
}

// makeTaken makes a room of which a record is kept from view.
func (w *world) makeTaken() (err error) {
	if w.taken, err = w.a.create(w.ada, map[string]any{"topic": "Where do the gauges stand?", "language": "en", "tags": []string{"readings"}}); err != nil {
		return err
	}
	s := &script{room: w.taken}
	s.join(w.ben, "speaker", "reads the gauges")
	s.say(w.ada, plain, "Where is the gauge that failed?")
	s.say(w.ben, plain, "At the house of a person who did not agree to be named here.")
	s.say(w.ada, plain, "Taken down. Say the district only, please.")
	s.send(w.ada, "room.close", map[string]any{"reason": "Answered."})
	if s.err != nil {
		return s.err
	}
	return w.a.operate("/host/withhold", map[string]any{"room": w.taken.id, "seq": 4, "reason": "an address"})
}

// makeForked lets c lose its disk, come back from an older copy, and go on with another story.
func (w *world) makeForked() (err error) {
	if w.forked, err = w.c.create(w.ben, map[string]any{"topic": "What if backups talk?", "language": "en", "tags": []string{"backups"}}); err != nil {
		return err
	}
	s := &script{room: w.forked}
	held := func(seq int64) func() bool {
		return func() bool {
			var there struct{ Seq int64 }
			return w.b.get("/m/"+w.c.authority()+"/v1/rooms/"+w.forked.id, &there) == nil && there.Seq == seq
		}
	}
	say := func(text string) func() error {
		return func() error { s.say(w.ben, plain, text); return s.err }
	}
	wait := func(what string, ok func() bool) func() error { return func() error { return until(what, ok) } }
	folder := func(name string) string { return filepath.Join(w.dir, name) }
	stop := func() error { return w.c.stop() }
	again := func(data string) func() error {
		return func() error {
			back, err := start(folder(data), w.c.port, nil)
			if err == nil {
				w.c, s.room.at = back, back
			}
			return err
		}
	}
	for _, step := range []func() error{
		say("Then there are two of us."), wait("the mirror to hold the room of c", held(2)), stop,
		func() error { return os.CopyFS(folder("older"), os.DirFS(folder("c"))) },
		func() error { return os.Chmod(filepath.Join(folder("older"), "key"), 0o600) }, again("c"),
		say("The story that everybody read."), wait("the mirror to hold the first story", held(3)), stop, again("older"),
		say("Another story."), say("And more of it."),
		wait("the fork to be seen", func() bool {
			var rooms []any
			return w.b.get("/v1/index/rooms?verdict=forked", &rooms) == nil && len(rooms) == 1
		}),
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until b holds all public rooms, and its index as well, and the archive is attested at both.
func (w *world) settle() error {
	held := func(h hosted) func() bool {
		return func() bool {
			var here, there struct{ Seq int64 }
			return w.a.get("/v1/rooms/"+h.id, &here) == nil && w.b.get("/m/"+w.a.authority()+"/v1/rooms/"+h.id, &there) == nil && here.Seq == there.Seq
		}
	}
	for _, h := range []hosted{w.modbus, w.live, w.hostile, w.long, w.right, w.taken} {
		if err := until("the mirror to hold "+h.id, held(h)); err != nil {
			return err
		}
	}
	listed := func(at *running) (map[string]int64, error) {
		var list []struct {
			RoomID  string `json:"room_id"`
			Records int64
		}
		err := at.get("/v1/index/rooms?visibility=public&limit=100&host="+w.a.origin, &list)
		records := map[string]int64{}
		for _, r := range list {
			records[r.RoomID] = r.Records
		}
		return records, err
	}
	if err := until("the index of b to list what that of a lists", func() bool {
		here, err1 := listed(w.a)
		there, err2 := listed(w.b)
		return err1 == nil && err2 == nil && len(here) > 10 && maps.Equal(here, there)
	}); err != nil {
		return err
	}
	for _, d := range []*running{w.a, w.b} {
		if err := until("the attestation at "+d.origin, func() bool {
			var list []any
			return d.get("/v1/witness/attestations?origin="+w.a.origin+"&room_id="+w.modbus.id, &list) == nil && len(list) > 0
		}); err != nil {
			return err
		}
	}
	return nil
}
