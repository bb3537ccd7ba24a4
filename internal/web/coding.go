package web

import (
	"strconv"
	"strings"
)

// TakesGzip tells whether a client that says this in Accept-Encoding takes an answer in gzip (RFC 9110 §12.5.3).
func TakesGzip(values []string) bool {
	any, named := false, false
	for coding := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, params, _ := strings.Cut(coding, ";")
		weight := 1.0
		if q, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(params)), "q="); ok {
			n, err := strconv.ParseFloat(q, 64)
			if err != nil {
				continue
			}
			weight = n
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip", "x-gzip":
			if named = true; weight > 0 {
				return true
			}
		case "*":
			any = weight > 0
		}
	}
	return any && !named
}
