package web

import (
	"net/http"
	"strconv"
	"strings"
)

// maxRanges bounds the parts that one request may ask for: each has to be found.
const maxRanges = 16

// Ranged tells whether a request asks for parts of what it names in a way that is to be
// heeded. Other units, what is malformed, and too many parts are answered with the whole
// (RFC 9110 §14.2).
func Ranged(r *http.Request) bool {
	unit, list, ok := strings.Cut(r.Header.Get("Range"), "=")
	if !ok || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return false
	}
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		part = strings.Trim(part, " \t")
		if part == "" { // a list may have empty elements
			continue
		}
		if n++; n > maxRanges || !byteRange(part) {
			return false
		}
	}
	return n > 0
}

// byteRange tells whether a part is one of a-b, a-, and -n.
func byteRange(part string) bool {
	from, to, ok := strings.Cut(part, "-")
	if !ok || from == "" && to == "" {
		return false
	}
	first, last := int64(0), int64(0)
	for s, n := range map[string]*int64{from: &first, to: &last} {
		if s == "" {
			continue
		}
		v, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			return false
		}
		*n = int64(v)
	}
	return from == "" || to == "" || first <= last
}
