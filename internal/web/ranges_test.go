package web_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/witan-adp/witan/internal/web"
)

func TestRanged(t *testing.T) {
	many := strings.Repeat("1-2,", 17)
	for header, want := range map[string]bool{
		"": false, "bytes=0-": true, "bytes=0-0": true, "bytes=-5": true, "Bytes=1-2": true, "bytes=1-2, 5-6": true, "bytes=,1-2,": true,
		"bytes=7-3": false, "bytes=": false, "bytes=-": false, "bytes=a-b": false, "bytes=1-2,x": false, "bytes=1": false, "bytes=+1-2": false,
		"lines=1-2": false, "bytes": false, "bytes=99999999999999999999-": false, "bytes=" + many: false, "bytes=" + many[:64]: true,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Range", header)
		if got := web.Ranged(r); got != want {
			t.Errorf("%.60q: %v, want %v", header, got, want)
		}
	}
}
