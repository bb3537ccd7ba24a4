package web

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
)

// What caches may do with an answer.
const (
	// CacheForever is for what never changes, and is public.
	CacheForever = "public, max-age=31536000, immutable"
	// CacheFinal is for what is not to change, is public, and may have to be taken from
	// view: it is used for a minute, and asked about after that. A cache that cannot
	// ask must not use it.
	CacheFinal = "public, max-age=60, must-revalidate"
	// CacheAsk is for what may change: it is kept, and asked about before each use.
	CacheAsk = "no-cache"
	// CacheNever is for what not everybody may read.
	CacheNever = "private, no-store"
)

// Tag makes a strong entity tag (RFC 9110 §8.8.3) of the bytes of a body.
func Tag(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}

// NotModified gives an answer its entity tag and its rule for caches, and answers
// 304 when the client has that very answer (If-None-Match): then it returns true
// and nothing more is to be written. Headers that 304 shall have come before it.
func NotModified(w http.ResponseWriter, r *http.Request, tag, cache string) bool {
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", cache)
	if !noneMatch(r.Header.Values("If-None-Match"), tag) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

// noneMatch tells whether If-None-Match names the tag; weak and strong compare alike
// there (RFC 9110 §13.1.2). A list that is malformed names what stands before.
func noneMatch(values []string, tag string) bool {
	rest := strings.Join(values, ",")
	tag = strings.TrimPrefix(tag, "W/")
	if strings.TrimSpace(rest) == "*" {
		return true
	}
	for {
		rest = strings.TrimLeft(rest, " \t,")
		rest = strings.TrimPrefix(rest, "W/")
		if rest == "" || rest[0] != '"' {
			return false
		}
		end := strings.IndexByte(rest[1:], '"')
		if end < 0 {
			return false
		}
		if rest[:end+2] == tag {
			return true
		}
		rest = rest[end+2:]
	}
}

// WriteTagged answers 200 with JSON that is tagged by its bytes, or 304.
func WriteTagged(w http.ResponseWriter, r *http.Request, cache string, body []byte) {
	if NotModified(w, r, Tag(body), cache) {
		return
	}
	WriteRaw(w, http.StatusOK, body)
}
