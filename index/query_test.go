package index

import (
	"net/url"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func filterDocs() []Doc {
	return []Doc{
		doc("active", func(d *Doc) {
			d.Own, d.Origin, d.Topic, d.Agenda, d.Guidance = true, ownOrigin, "Quorum of Mirrors", "Why STRASSE and straße", "be kind"
			d.Tags, d.Language, d.Types = []string{"Federation", "go lang"}, "en", []string{"poll.create", "x.y"}
		}),
		doc("later", func(d *Doc) {
			d.Own, d.Origin, d.Visibility, d.Creator = true, ownOrigin, "restricted", agent(2)
			d.StartTime, d.EndTime, d.Language, d.Topic = start+500, start+2000, "EN-gb", "联邦镜像的讨论 v2"
		}),
		doc("over", func(d *Doc) {
			d.Closed, d.State, d.Tags, d.Verdict, d.Attested = true, "complete", []string{"federation"}, "violations", "attested"
			d.Origin = "https://example.org:8443"
		}),
		doc("off", func(d *Doc) {
			d.Cancelled, d.StartTime, d.EndTime, d.Verdict, d.Origin = true, start+500, start+700, "forked", "http://example.org"
			d.Language = "eng"
		}),
		doc("meta", func(d *Doc) {
			d.Visibility, d.MetadataOnly, d.EndTime, d.State, d.Origin = "restricted", true, start+2000, "behind", "https://[2001:db8::1]"
		}),
	}
}

func TestFilters(t *testing.T) {
	x, _ := newIndex(start+100, filterDocs()...)
	for _, tt := range []struct{ query, want string }{
		{"", "meta active later off over"},
		{"unknown=1&unknown=2&sorted=no", "meta active later off over"},

		{"host=https%3A%2F%2Fown.example", "active later"},
		{"host=own.example", "active later"},
		{"host=OWN.example:443", "active later"},
		{"host=https://Own.Example:443/", "active later"},
		{"host=http://own.example", ""},
		{"host=own.example:80", ""},
		{"host=example.org:8443", "over"},
		{"host=example.org", "off"},
		{"host=example.org:80", "off"},
		{"origin=https://example.org:8443", "over"},
		{"origin=[2001:DB8:0::1]", "meta"},
		{"host=nowhere.example", ""},

		{"tag=Federation", "active"},
		{"tag=federation", "over"},
		{"tag=go+lang", "active"},
		{"tag=go", ""},

		{"status=active", "meta active"},
		{"status=scheduled", "later"},
		{"status=ended", "over"},
		{"status=cancelled", "off"},

		{"language=en", "active later"},
		{"language=EN", "active later"},
		{"language=en-GB", "later"},
		{"language=en-US", ""},
		{"language=eng", "off"},
		{"language=gb", ""},

		{"q=quorum", "active"},
		{"q=mirrors+QUORUM", "active"},
		{"q=quor", ""},
		{"q=quorum+absent", ""},
		{"q=kind", "active"},
		{"q=Straße", "active"},
		{"q=strasse+lang,+federation!", "active"},
		{"q=" + url.QueryEscape("镜像"), "later"},
		{"q=" + url.QueryEscape("联邦 讨论"), "later"},
		{"q=" + url.QueryEscape("讨论v2"), "later"},
		{"q=" + url.QueryEscape("Ｖ２"), "later"},
		{"q=" + url.QueryEscape("联像"), ""},

		{"keyword=QUOR", "active"},
		{"keyword=um+of+mi", "active"},
		{"keyword=strasse", "active"},
		{"keyword=EDERATIO", "active over"},
		{"keyword=kind", ""},
		{"keyword=" + url.QueryEscape("邦镜"), "later"},
		{"keyword=mirrorswhy", ""},

		{"creator=" + agent(2), "later"},
		{"creator=" + agent(3), ""},
		{"visibility=public", "active off over"},
		{"visibility=restricted", "meta later"},
		{"verdict=verified", "meta active later"},
		{"verdict=forked", "off"},
		{"verdict=violations", "over"},
		{"verdict=equivocated", ""},
		{"state=complete", "over"},
		{"state=behind", "meta"},
		{"state=gone", ""},
		{"attested=attested", "over"},
		{"attested=unattested", "meta active later off"},
		{"joinable=true", "active"},
		{"joinable=false", "meta later off over"},
		{"types=poll.create", "active"},
		{"types=x.y", "active"},
		{"types=poll.vote", ""},

		{"starts_after=1000000", "later off"},
		{"starts_after=999999", "meta active later off over"},
		{"starts_after=1000500", ""},
		{"ends_before=1001000", "off"},
		{"ends_before=1001001", "active off over"},
		{"starts_after=1000499&ends_before=1000701", "off"},
		{"starts_after=-1&ends_before=9007199254740991", "meta active later off over"},

		{"sort=activity", "meta active later over off"},
		{"sort=start", "meta over active off later"},
		{"status=active&visibility=public&language=en&verdict=verified&q=quorum&keyword=fed&host=own.example", "active"},
	} {
		want := tt.want
		got := roomIDs(t, x, tt.query)
		if !strings.Contains(tt.query, "sort=") { // order has its own test
			got, want = sorted(got), sorted(want)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", tt.query, got, want)
		}
	}
}

func TestPublicFilters(t *testing.T) {
	x, _ := newIndex(start+100, filterDocs()...)
	for _, tt := range []struct{ query, want string }{
		{"", "active later"},
		{"host=example.org&q=nothing&verdict=odd&sort=odd&visibility=private", "active later"}, // not ours to read here
		{"status=active", "active"},
		{"status=ended", ""},
		{"tag=Federation", "active"},
		{"tag=federation", ""},
		{"keyword=QUORUM", "active"},
		{"creator=" + agent(2), "later"},
		{"language=en", "active later"},
		{"language=en-gb", "later"},
		{"starts_after=1000000", "later"},
		{"ends_before=1001001", "active"},
		{"limit=1", "active"},
		{"limit=1000", "active later"},
	} {
		if got := publicIDs(t, x, tt.query); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.query, got, tt.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	x, _ := newIndex(start, filterDocs()...)
	common := []struct{ query, parameter string }{
		{"status=open", "status"}, {"status=Active", "status"}, {"status=", "status"}, {"status=active&status=active", "status"},
		{"tag=", "tag"}, {"tag=a&tag=b", "tag"}, {"tag=%FF", "tag"},
		{"keyword=", "keyword"}, {"keyword=a&keyword=a", "keyword"}, {"keyword=%C3", "keyword"}, {"keyword=" + strings.Repeat("a", maxText+1), "keyword"},
		{"creator=me", "creator"}, {"creator=did:agent:short", "creator"}, {"creator=", "creator"},
		{"language=", "language"}, {"language=en&language=de", "language"},
		{"starts_after=soon", "starts_after"}, {"starts_after=1.5", "starts_after"}, {"starts_after=", "starts_after"}, {"starts_after=1&starts_after=1", "starts_after"},
		{"ends_before=1e3", "ends_before"}, {"ends_before=9007199254740992", "ends_before"}, {"ends_before=%2B1", "ends_before"},
		{"limit=0", "limit"}, {"limit=-1", "limit"}, {"limit=x", "limit"}, {"limit=", "limit"}, {"limit=1&limit=1", "limit"},
		{"cursor=", "cursor"}, {"cursor=AAAA", "cursor"}, {"cursor=a&cursor=a", "cursor"},
	}
	for _, tt := range common {
		_, _, err := rooms(t, x, tt.query)
		refused(t, tt.query, tt.parameter, err)
		q, parseErr := url.ParseQuery(tt.query)
		if parseErr != nil {
			t.Fatal(parseErr)
		}
		_, _, err = x.Public(q)
		refused(t, "public "+tt.query, tt.parameter, err)
	}
	words := strings.Repeat("a+", maxWords+1)
	for _, tt := range []struct{ query, parameter string }{
		{"host=", "host"}, {"host=a/b", "host"}, {"host=ftp://a.example", "host"}, {"host=https://", "host"}, {"host=u@a.example", "host"},
		{"host=https://a.example/v1", "host"}, {"host=a.example?x", "host"}, {"host=a.example:0", "host"}, {"host=a.example:65536", "host"},
		{"host=a.example:", "host"}, {"host=a+b", "host"}, {"host=b%C3%BCcher.example", "host"}, {"host=[::1", "host"}, {"host=[fe80::1%2525eth0]", "host"},
		{"origin=x%00y", "origin"}, {"origin=%3A80", "origin"}, {"host=a.example&origin=a.example", "origin"}, {"host=a.example&host=a.example", "host"},
		{"q=", "q"}, {"q=+.!+", "q"}, {"q=a&q=b", "q"}, {"q=%80", "q"}, {"q=" + words, "q"}, {"q=" + strings.Repeat("a", maxText+1), "q"},
		{"visibility=private", "visibility"}, {"visibility=PUBLIC", "visibility"}, {"verdict=good", "verdict"}, {"verdict=", "verdict"},
		{"state=ended", "state"}, {"attested=yes", "attested"}, {"joinable=1", "joinable"}, {"joinable=", "joinable"},
		{"types=poll", "types"}, {"types=Poll.create", "types"}, {"types=poll.", "types"}, {"types=poll._x", "types"}, {"types=a.b&types=a.b", "types"},
		{"types=a." + strings.Repeat("b", 127), "types"},
		{"sort=relevance", "sort"}, {"sort=best", "sort"}, {"facets=", "facets"}, {"facets=status,", "facets"}, {"facets=topic", "facets"}, {"since=x", "since"}, {"sort=", "sort"}, {"sort=start&sort=start", "sort"},
	} {
		_, _, err := rooms(t, x, tt.query)
		refused(t, tt.query, tt.parameter, err)
	}
	if _, _, err := rooms(t, x, "tag=%zz"); adp.CodeOf(err) != adp.InvalidRequest {
		t.Errorf("a malformed query: %v", err)
	}
}

func TestCursorBelongsToItsList(t *testing.T) {
	x, _ := newIndex(start+100, filterDocs()...)
	_, next, err := rooms(t, x, "visibility=public&limit=1")
	if err != nil || next == "" {
		t.Fatal(next, err)
	}
	q, _ := url.ParseQuery(next)
	if q.Get("visibility") != "public" || q.Get("limit") != "1" {
		t.Errorf("the next page loses what was asked for: %s", next)
	}
	cursor := url.QueryEscape(q.Get("cursor"))
	// a larger page and a parameter that is not ours change nothing
	if got := roomIDs(t, x, "visibility=public&limit=50&unknown=1&cursor="+cursor); got != "over off" {
		t.Errorf("the rest: %s", got)
	}
	for _, other := range []string{"", "visibility=restricted&", "visibility=public&sort=start&", "visibility=public&tag=a&"} {
		_, _, err := rooms(t, x, other+"cursor="+cursor)
		refused(t, other, "cursor", err)
	}
	_, _, err = x.Public(url.Values{"cursor": {q.Get("cursor")}})
	refused(t, "public", "cursor", err)
	ids, public, err := x.Public(url.Values{"limit": {"1"}})
	if err != nil || len(ids) != 1 || public == "" {
		t.Fatal(ids, public, err)
	}
	_, _, err = rooms(t, x, "cursor="+url.QueryEscape(public))
	refused(t, "the host's cursor", "cursor", err)
	ids, public, err = x.Public(url.Values{"cursor": {public}})
	if err != nil || strings.Join(ids, " ") != "later" || public != "" {
		t.Error(ids, public, err)
	}
	short := testCursors.Seal("index/rooms?", []byte{cursorVersion, 0})
	_, _, err = rooms(t, x, "cursor="+short)
	refused(t, "a cursor of another version", "cursor", err)
}

func FuzzQuery(f *testing.F) {
	x, _ := newIndex(start+100, filterDocs()...)
	_, next, _ := rooms(f, x, "limit=1")
	for _, s := range []string{"", next, "q=a+b&host=[::1]:80&limit=3", "tag=%zz", "language=en-&types=a.b", "host=https://a:1", "q=\u0301\u30fc\ufe0f", "starts_after=-9&sort=start", "q=a&sort=relevance&facets=host,tag", "since=5&types=adp:deliberation/1.0", "facets=status,,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		list, next, err := rooms(t, x, query)
		if err != nil {
			if adp.CodeOf(err) != adp.InvalidRequest {
				t.Fatalf("%q: %v", query, err)
			}
		} else if next != "" {
			more, _, err := rooms(t, x, next)
			if err != nil || len(list)+len(more) > x.Len() {
				t.Fatalf("%q: the next page %q: %d and %d rooms, %v", query, next, len(list), len(more), err)
			}
		}
		if q, err := url.ParseQuery(query); err == nil {
			if _, _, err := x.Public(q); err != nil && adp.CodeOf(err) != adp.InvalidRequest {
				t.Fatalf("public %q: %v", query, err)
			}
		}
	})
}
