package page

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// funcs are the words of the templates.
func (s *Site) funcs() template.FuncMap {
	return template.FuncMap{
		"t":       t,
		"count":   count,
		"n":       number,
		"bytes":   size,
		"when":    when,
		"since":   sinceWord,
		"day":     day,
		"brief":   brief,
		"agent":   agent,
		"mark":    ornament,
		"text":    func(text string, most int) template.HTML { return isolated(clip(text, most)) },
		"plain":   func(text string) string { return visible(oneLine(text)) },
		"paras":   paragraphs,
		"hits":    hits,
		"short":   shortHash,
		"icon":    icon,
		"badge":   badge,
		"asset":   s.path,
		"room":    roomPath,
		"host":    hostPath,
		"bare":    func(origin string) string { _, a, _ := strings.Cut(origin, "://"); return a },
		"api":     apiPath,
		"address": func(u string) template.HTML { return addressLink(visible(clip(u, 200)), u) },
		"query":   func(name, value string) string { return name + "=" + url.QueryEscape(value) },
		"lang":    func() string { return t("lang") },
		"words":   words,

		"worker":     s.worker,
		"checkWords": checkWords,
	}
}

func roomPath(authority, id string) string {
	return "/rooms/" + url.PathEscape(authority) + "/" + url.PathEscape(id)
}

func hostPath(authority string) string { return "/hosts/" + url.PathEscape(authority) }

// apiPath is the part of an absolute URL of this daemon that a page links to.
func apiPath(absolute string) string {
	u, err := url.Parse(absolute)
	if err != nil {
		return ""
	}
	return u.RequestURI()
}

// number writes an integer with spaces between thousands.
func number(v any) string {
	text := fmt.Sprint(v)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "−", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:] // a narrow space that does not break
	}
	return sign + text
}

// size writes a number of bytes.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return number(n) + " B"
	}
	f, units := float64(n), []string{"KiB", "MiB", "GiB", "TiB", "PiB"}
	for i, u := range units {
		if f /= unit; f < unit || i == len(units)-1 {
			if f < 10 {
				return strconv.FormatFloat(f, 'f', 1, 64) + " " + u
			}
			return number(int64(f+0.5)) + " " + u
		}
	}
	return ""
}

// when is a time, in UTC; the script writes it in the zone of the reader.
func when(ms int64) template.HTML { return moment(ms, "2006-01-02 15:04", "") }

// day is the date of a time.
func day(ms int64) template.HTML { return moment(ms, "2006-01-02", "day") }

// brief is a time for narrow places: the script leaves out the present year.
func brief(ms int64) template.HTML { return moment(ms, "2006-01-02 15:04", "brief") }

// lastTime is the greatest time that ADP and RFC 3339 can both write.
const lastTime = 253402300799999

func moment(ms int64, layout, form string) template.HTML {
	if ms <= 0 || ms > lastTime {
		return template.HTML(template.HTMLEscapeString(t("time.never")))
	}
	at := time.UnixMilli(ms).UTC()
	if form != "" {
		form = ` data-form="` + form + `"`
	}
	return template.HTML(`<time datetime="` + at.Format("2006-01-02T15:04:05.000Z") + `" title="` + at.Format("2006-01-02 15:04:05 UTC") + `"` + form + `>` + at.Format(layout) + ` UTC</time>`)
}

// icons are drawn in a box of 16 by 16. Each has its own shape, so that none is
// known by its colour alone.
var icons = map[string]string{
	"check": `<circle cx="8" cy="8" r="7"/><path class="cut" d="M4.5 8.3 7 10.8 11.6 5.6"/>`,
	"warn":  `<path d="M8 1 15.5 14.5H.5z"/><path class="cut" d="M8 6v4M8 12v.6"/>`,
	"stop":  `<path d="M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1z"/><path class="cut" d="M5.3 5.3l5.4 5.4M10.7 5.3l-5.4 5.4"/>`,
	"fork":  `<path d="M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1z"/><path class="cut" d="M8 12.5V8.6L5 5.4V3.6M8 8.6l3-3.2V3.6"/>`,
	"ring":  `<circle class="line" cx="8" cy="8" r="6"/>`,
	"half":  `<circle class="line" cx="8" cy="8" r="6"/><path d="M8 2a6 6 0 0 1 0 12z"/>`,
	"seal":  `<circle cx="8" cy="8" r="7"/><circle class="cut" cx="8" cy="8" r="3.4"/>`,
	"dot":   `<circle cx="8" cy="8" r="4"/>`,
	"pause": `<path d="M4 3h3v10H4zM9 3h3v10H9z"/>`,
	"clock": `<circle class="line" cx="8" cy="8" r="6"/><path class="line" d="M8 4.5V8l2.4 1.6"/>`,
	"end":   `<path d="M3.5 3.5h9v9h-9z"/>`,
}

func icon(name string) template.HTML {
	return template.HTML(`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">` + icons[name] + `</svg>`)
}

// looks of the words that say how something stands: an icon and a tone.
var looks = map[string][2]string{
	"verified": {"check", "good"}, "violations": {"warn", "warn"}, "broken": {"stop", "bad"}, "forked": {"fork", "bad"},
	"archive-mismatch": {"stop", "bad"}, "equivocated": {"fork", "bad"}, "unverified": {"ring", "mute"},
	"attested": {"seal", "good"}, "partial": {"half", "warn"}, "unattested": {"ring", "mute"},
	"scheduled": {"clock", "mute"}, "active": {"dot", "live"}, "ended": {"end", "mute"}, "cancelled": {"end", "mute"},
	"following": {"dot", "good"}, "behind": {"warn", "warn"}, "complete": {"check", "good"}, "paused": {"pause", "mute"}, "gone": {"stop", "warn"},
	"quarantined": {"stop", "bad"}, "backing-off": {"clock", "warn"}, "blocked": {"stop", "bad"}, "rebound": {"warn", "bad"}, "removed": {"end", "mute"}, "unread": {"warn", "warn"}, OwnHost: {"dot", "live"},
	"proof": {"stop", "bad"}, "observation": {"warn", "warn"},
}

// badge says in a word, an icon and a colour how something stands.
func badge(word string) template.HTML {
	look, ok := looks[word]
	if !ok {
		look = [2]string{"ring", "mute"}
	}
	label, known := english["word."+word]
	if !known {
		label = visible(word)
	}
	return template.HTML(`<span class="badge `+look[1]+`">`) + icon(look[0]) + template.HTML(template.HTMLEscapeString(label)+`</span>`)
}

// renderings keeps Markdown that was rendered, so that a page that many read is
// rendered once. It keeps the newest, within a bound on bytes, in two generations.
type renderings struct {
	mu       sync.Mutex
	now, old map[string]template.HTML
	bytes    int
}

// maxRendered bounds each of the two generations, in bytes.
const maxRendered = 8 << 20

// of gives what was rendered under a key, which names the text for good, such as
// its hash.
func (c *renderings) of(key string, render func() template.HTML) template.HTML {
	c.mu.Lock()
	h, ok := c.now[key]
	if !ok {
		h, ok = c.old[key]
	}
	c.mu.Unlock()
	if !ok {
		h = render()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.now[key]; there {
		return h
	}
	if c.now == nil || c.bytes+len(h) > maxRendered {
		c.now, c.old, c.bytes = map[string]template.HTML{}, c.now, 0
	}
	if len(h) <= maxRendered {
		c.now[key] = h
		c.bytes += len(h) + len(key)
	}
	return h
}
