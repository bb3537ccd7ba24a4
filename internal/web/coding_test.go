package web

import "testing"

func TestTakesGzip(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   bool
	}{
		{nil, false}, {[]string{""}, false}, {[]string{"gzip"}, true}, {[]string{"br, GZIP;q=0.5"}, true}, {[]string{"gzip;q=0"}, false}, {[]string{"gzip;q=0, *"}, false},
		{[]string{"*"}, true}, {[]string{"*;q=0"}, false}, {[]string{"br"}, false}, {[]string{"br", "x-gzip"}, true}, {[]string{"identity;q=1, *;q=0"}, false}, {[]string{"gzip;q=many"}, false},
	} {
		if got := TakesGzip(c.values); got != c.want {
			t.Errorf("%q: %v, want %v", c.values, got, c.want)
		}
	}
}
