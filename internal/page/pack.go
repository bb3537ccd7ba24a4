package page

import (
	"bytes"
	"compress/gzip"
	"strings"
	"sync"
)

// packers are used again: each holds some hundred kilobytes.
var packers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// pack is a body in gzip.
func pack(body []byte) []byte {
	var out bytes.Buffer
	z := packers.Get().(*gzip.Writer)
	defer packers.Put(z)
	z.Reset(&out)
	// a buffer takes everything
	_, _ = z.Write(body)
	_ = z.Close()
	return out.Bytes()
}

// packedTag is the entity tag of the same body in gzip, which is another representation (RFC 9110 §8.8.3.3).
func packedTag(tag string) string { return strings.TrimSuffix(tag, `"`) + `-gzip"` }
