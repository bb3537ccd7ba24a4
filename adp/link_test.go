package adp

import "testing"

func TestNextPage(t *testing.T) {
	for _, c := range []struct {
		links []string
		want  string
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{`<https://h.example/v1/rooms/public?cursor=a>; rel="next"`}, "https://h.example/v1/rooms/public?cursor=a"},
		{[]string{`<https://h.example/a>; rel="prev", </b?c=1>; title="x"; REL=next`}, "/b?c=1"},
		{[]string{`<https://h.example/a>; rel="prev"`, `<https://h.example/b>; rel="next"`}, "https://h.example/b"},
		{[]string{`https://h.example/a; rel="next"`, `<https://h.example/a`, `<x>; rel="nextish"`}, ""},
	} {
		if got := NextPage(c.links...); got != c.want {
			t.Errorf("%q: %q, want %q", c.links, got, c.want)
		}
	}
}
