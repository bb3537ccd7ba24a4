package web

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/witan-adp/witan/adp"
)

// ParseQuery reads the query of a request. Unlike URL.Query it does not drop
// what it cannot read: that is invalid_request. Names that the handler does not
// ask for are ignored.
func ParseQuery(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, adp.Errorf(adp.InvalidRequest, "The query string is malformed, or has more parameters than anything here takes; percent-encode it as application/x-www-form-urlencoded.")
	}
	return q, nil
}

// String is the value of a parameter, "" when it is absent. A parameter that
// stands twice is invalid_request: taking either value would be a guess.
func String(q url.Values, name string) (string, error) {
	switch values := q[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	default:
		return "", adp.Errorf(adp.InvalidRequest, "Query parameter %q stands %d times; give it once.", name, len(values)).
			With("parameter", name)
	}
}

// Int64 is the value of an integer parameter, def when it is absent. Anything
// but one decimal integer of [min, max] is invalid_request.
func Int64(q url.Values, name string, min, max, def int64) (int64, error) {
	n, present, err := integer(q, name)
	if err != nil {
		return 0, err
	}
	if !present {
		return def, nil
	}
	if n < min || n > max {
		return 0, adp.Errorf(adp.InvalidRequest, "Query parameter %q is %d; give an integer from %d to %d.", name, n, min, max).
			With("parameter", name)
	}
	return n, nil
}

// Limit is the parameter "limit": def when absent, invalid_request below 1,
// max when it is more than that (ADP §16 lets a host cap it).
func Limit(q url.Values, def, max int) (int, error) {
	n, present, err := integer(q, "limit")
	if err != nil {
		return 0, err
	}
	if !present {
		return def, nil
	}
	if n < 1 {
		return 0, adp.Errorf(adp.InvalidRequest, "Query parameter \"limit\" is %d; give an integer from 1 to %d.", n, max).
			With("parameter", "limit")
	}
	return int(min(n, int64(max))), nil
}

func integer(q url.Values, name string) (n int64, present bool, err error) {
	text, err := String(q, name)
	if err != nil {
		return 0, false, err
	}
	if !q.Has(name) {
		return 0, false, nil
	}
	n, parseErr := strconv.ParseInt(text, 10, 64)
	if parseErr != nil || text[0] == '+' {
		return 0, false, adp.Errorf(adp.InvalidRequest, "Query parameter %q is not a decimal integer of 64 bits.", name).
			With("parameter", name)
	}
	return n, true, nil
}
