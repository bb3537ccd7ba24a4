package web

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func TestAnswers(t *testing.T) {
	big := []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
	for _, tt := range []struct {
		name  string
		write func(*httptest.ResponseRecorder)
		code  int
		body  string
	}{
		{"json", func(w *httptest.ResponseRecorder) { WriteJSON(w, 201, map[string]any{"a": "<&>", "b": nil}) }, 201, `{"a":"<&>","b":null}`},
		{"raw", func(w *httptest.ResponseRecorder) { WriteRaw(w, 200, []byte(`{ "kept":1.0 }`)) }, 200, `{ "kept":1.0 }`},
		{"no items", func(w *httptest.ResponseRecorder) { WriteArray(w, nil) }, 200, `[]`},
		{"one item", func(w *httptest.ResponseRecorder) { WriteArray(w, [][]byte{[]byte("1")}) }, 200, `[1]`},
		{"items", func(w *httptest.ResponseRecorder) { WriteArray(w, [][]byte{[]byte("1"), big, []byte("{}")}) }, 200, `[1,` + string(big) + `,{}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			tt.write(w)
			if w.Code != tt.code || w.Body.String() != tt.body {
				t.Errorf("got %d %.80s", w.Code, w.Body)
			}
			if w.Header().Get("Content-Type") != "application/json" || w.Result().ContentLength != int64(len(tt.body)) {
				t.Errorf("header %v", w.Header())
			}
		})
	}
}

func TestWriteJSONUnencodable(t *testing.T) {
	w := httptest.NewRecorder()
	defer func() {
		if recover() == nil || w.Body.Len() > 0 || len(w.Header()) > 0 {
			t.Errorf("want a panic before anything is sent, got %q", w.Body)
		}
	}()
	WriteJSON(w, 200, func() {})
}

func TestNextLink(t *testing.T) {
	w := httptest.NewRecorder()
	NextLink(w, "https://a.example/v1/rooms/public?limit=2&cursor=x>\r\ny")
	if got, want := w.Header().Get("Link"), `<https://a.example/v1/rooms/public?limit=2&cursor=x%3E%0D%0Ay>; rel="next"`; got != want {
		t.Errorf("got %s", got)
	}
}

func TestQuery(t *testing.T) {
	const bad = -1
	for _, tt := range []struct {
		query      string
		seq, limit int64
	}{
		{"", 5, 100},
		{"unknown=1&unknown=2", 5, 100},
		{"after_seq=0&limit=1", 0, 1},
		{"after_seq=1000&limit=1000", 1000, 1000},
		{"limit=1001", 5, 1000},
		{"limit=9223372036854775807", 5, 1000},
		{"limit=9223372036854775808", 5, bad},
		{"after_seq=007", 7, 100},
		{"after_seq=-1&limit=0", bad, bad},
		{"after_seq=1001&limit=-1", bad, bad},
		{"after_seq=1.5&limit=1e2", bad, bad},
		{"after_seq=&limit=", bad, bad},
		{"after_seq=%2B1&limit=%2B1", bad, bad},
		{"after_seq=1_0&limit=0x10", bad, bad},
		{"after_seq=+1&limit=1+", bad, bad},
		{"after_seq=1&after_seq=1&limit=1&limit=2", bad, bad},
	} {
		q, err := ParseQuery(httptest.NewRequest("GET", "/?"+tt.query, nil))
		if err != nil {
			t.Fatal(err)
		}
		seq, err := Int64(q, "after_seq", 0, 1000, 5)
		checkNumber(t, tt.query, "after_seq", seq, tt.seq, err)
		limit, err := Limit(q, 100, 1000)
		checkNumber(t, tt.query, "limit", int64(limit), tt.limit, err)
	}
}

func checkNumber(t *testing.T, query, name string, got, want int64, err error) {
	t.Helper()
	if want >= 0 {
		if got != want || err != nil {
			t.Errorf("%s: %s = %d, %v; want %d", query, name, got, err, want)
		}
		return
	}
	var coded *adp.Error
	if !errors.As(err, &coded) || coded.Code != adp.InvalidRequest || !strings.Contains(coded.Message, `"`+name+`"`) || coded.Data["parameter"] != name {
		t.Errorf("%s: %s = %d, %v; want invalid_request that names it", query, name, got, err)
	}
}

func TestParseQueryMalformed(t *testing.T) {
	for _, query := range []string{"a=%zz", "a;b", "%"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.RawQuery = query
		if _, err := ParseQuery(r); adp.CodeOf(err) != adp.InvalidRequest {
			t.Errorf("%q: %v", query, err)
		}
	}
	q := url.Values{"s": {"one"}, "d": {"x", "x"}}
	if s, err := String(q, "s"); s != "one" || err != nil {
		t.Errorf("String = %q, %v", s, err)
	}
	if _, err := String(q, "d"); adp.CodeOf(err) != adp.InvalidRequest {
		t.Errorf("a repeated parameter: %v", err)
	}
}

var cursorKey = []byte("0123456789abcdef")

func TestCursors(t *testing.T) {
	c := NewCursors(cursorKey)
	for _, payload := range [][]byte{nil, {0}, []byte("after 17"), bytes.Repeat([]byte{0xff}, 300)} {
		text := c.Seal("rooms", payload)
		got, err := NewCursors(cursorKey).Open("rooms", text)
		if err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("Open(Seal(%x)) = %x, %v", payload, got, err)
		}
	}
	good := c.Seal("rooms", []byte("after 17"))
	flipped := []byte(good)
	flipped[0] ^= 1
	bad := map[string]string{
		"empty": "", "nonsense": "\x00nonsense", "cut": good[:len(good)-2], "longer": good + "AA", "padded": good + "=",
		"line break": good[:4] + "\n" + good[4:], "flipped": string(flipped), "tag alone": good[len(good)-16:],
		"other key":    NewCursors([]byte("another key, 16+")).Seal("rooms", []byte("after 17")),
		"other kind":   c.Seal("rooms2", []byte("after 17")),
		"shifted kind": c.Seal("room", []byte("safter 17")),
	}
	one := c.Seal("rooms", []byte{7}) // 13 bytes: the last character carries 4 spare bits
	bad["spare bits"] = one[:len(one)-1] + string(next(one[len(one)-1]))
	for name, text := range bad {
		if got, err := c.Open("rooms", text); adp.CodeOf(err) != adp.InvalidRequest {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a short key was taken")
		}
	}()
	NewCursors([]byte("short"))
}

// next is the following character of the base64url alphabet, which differs in the lowest bit
// for an even value, as one with spare zero bits has.
func next(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)+1]
}

func FuzzCursorsOpen(f *testing.F) {
	c := NewCursors(cursorKey)
	f.Add("rooms", c.Seal("rooms", []byte("x")))
	f.Add("rooms", "AAAAAAAAAAAAAAAAAAAA")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, kind, text string) {
		payload, err := c.Open(kind, text)
		if err != nil {
			if adp.CodeOf(err) != adp.InvalidRequest {
				t.Fatalf("uncoded error %v", err)
			}
			return
		}
		if c.Seal(kind, payload) != text {
			t.Fatalf("%q opened as %x, which seals differently", text, payload)
		}
	})
}
