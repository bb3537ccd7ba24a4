package remote

import (
	"net/http"
	"testing"
)

func TestNextPage(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		`<https://a/x?y=1>; rel="next"`: "https://a/x?y=1",
		`<https://a/x>; rel=next`:       "https://a/x",
		`<https://a/p>; rel="prev", <https://a/n>; title="x"; rel="next"`: "https://a/n",
		`<https://a/p>; rel="last"`:                                       "",
		`https://a/x; rel="next"`:                                         "",
	} {
		if got := NextPage(http.Header{"Link": {in}}); got != want {
			t.Errorf("NextPage(%q) = %q, want %q", in, got, want)
		}
	}
}
