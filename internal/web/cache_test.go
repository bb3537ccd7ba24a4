package web

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func TestNoneMatch(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{`"a"`}, true},
		{[]string{`W/"a"`}, true},
		{[]string{"*"}, true},
		{[]string{` "b" , "a"`}, true},
		{[]string{`"b"`, `W/"c", "a"`}, true},
		{[]string{`"b,"a"`}, false}, // "b," and then no tag
		{[]string{`"b", a`}, false},
		{[]string{`"a`}, false},
		{[]string{`a`}, false},
		{[]string{`"ab"`}, false},
		{[]string{`"`}, false},
		{[]string{`,,"a"`}, true},
	} {
		if got := noneMatch(c.values, `"a"`); got != c.want {
			t.Errorf("%q: %v", c.values, got)
		}
	}
}

func TestWriteTagged(t *testing.T) {
	ask := func(tag, body string) *http.Response {
		r := httptest.NewRequest("GET", "/", nil)
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		w := httptest.NewRecorder()
		WriteTagged(w, r, CacheAsk, []byte(body))
		return w.Result()
	}
	first := ask("", `{"a":1}`)
	tag := first.Header.Get("ETag")
	if first.StatusCode != 200 || len(tag) < 20 || tag[0] != '"' || first.Header.Get("Cache-Control") != "no-cache" || first.ContentLength != 7 {
		t.Errorf("%d %v", first.StatusCode, first.Header)
	}
	again := ask(tag, `{"a":1}`)
	if again.StatusCode != 304 || again.Header.Get("ETag") != tag || again.Header.Get("Content-Type") != "" || again.ContentLength > 0 {
		t.Errorf("%d %v", again.StatusCode, again.Header)
	}
	if other := ask(tag, `{"a":2}`); other.StatusCode != 200 || other.Header.Get("ETag") == tag {
		t.Errorf("%d %v", other.StatusCode, other.Header)
	}
}

func TestSeats(t *testing.T) {
	s := NewSeats(2)
	from := func(addr string) *http.Request {
		var got *http.Request
		g := &Guard{Origin: "http://h.example"}
		r := httptest.NewRequest("GET", "http://h.example/", nil)
		r.RemoteAddr = addr
		g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r })).ServeHTTP(httptest.NewRecorder(), r)
		return got
	}
	a, err := s.Take(from("192.0.2.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Take(from("192.0.2.1:2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(from("192.0.2.1:3")); adp.CodeOf(err) != adp.RateLimited {
		t.Errorf("a third: %v", err)
	}
	other, err := s.Take(from("192.0.2.2:1"))
	if err != nil {
		t.Errorf("another address: %v", err)
	}
	a()
	a() // counts once
	again, err := s.Take(from("192.0.2.1:4"))
	if err != nil {
		t.Errorf("after one left: %v", err)
	}
	if _, err := s.Take(from("192.0.2.1:5")); err == nil {
		t.Error("a seat was given twice")
	}
	for _, leave := range []func(){b, other, again} {
		leave()
	}
	if len(s.taken) != 0 {
		t.Errorf("left behind: %v", s.taken)
	}
	v6, err := s.Take(from("[2001:db8::1]:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer v6()
	if v6b, err := s.Take(from("[2001:db8::2]:1")); err != nil {
		t.Fatal(err)
	} else {
		defer v6b()
	}
	if _, err := s.Take(from("[2001:db8::3]:1")); err == nil {
		t.Error("an IPv6 site has as many seats as addresses")
	}
}
