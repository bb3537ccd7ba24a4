package host

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/web"
)

// listQuery is what the lists that are kept here share: how many, of which status, and
// behind what.
type listQuery struct {
	h      *Host
	kind   string // of the cursor
	values url.Values
	limit  int
	status string // "" for all
	after  string // what the cursor holds; "" for the beginning
}

// listQuery reads the query of a list: limit 1 … 1000 (100), status, one of some words,
// and a cursor of that list.
func (h *Host) listQuery(req *http.Request, kind string, statuses ...string) (l listQuery, err error) {
	l = listQuery{h: h, kind: kind}
	if l.values, err = web.ParseQuery(req); err != nil {
		return l, err
	}
	if l.limit, err = web.Limit(l.values, 100, 1000); err != nil {
		return l, err
	}
	if l.status, err = l.word("status", statuses...); err != nil {
		return l, err
	}
	text, err := web.String(l.values, "cursor")
	if err != nil || text == "" {
		return l, err
	}
	b, err := h.opt.Cursors.Open(kind, text)
	l.after = string(b)
	return l, err
}

// word reads a parameter that is absent or one of some words.
func (l listQuery) word(name string, words ...string) (string, error) {
	v, err := web.String(l.values, name)
	if err != nil || v == "" || slices.Contains(words, v) {
		return v, err
	}
	n := len(words) - 1
	return "", adp.Errorf(adp.InvalidRequest, "%s must be %s or %s", name, strings.Join(words[:n], ", "), words[n]).With("parameter", name)
}

// next is the query of the page behind a place: the same filters and another cursor.
func (l listQuery) next(after string) string {
	next := url.Values{}
	for k, v := range l.values {
		next[k] = v
	}
	next.Set("cursor", l.h.opt.Cursors.Seal(l.kind, []byte(after)))
	return next.Encode()
}
