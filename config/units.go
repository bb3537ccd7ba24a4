package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time span that the file writes as "30s".
type Duration time.Duration

// UnmarshalText reads the text form of time.ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a time; write a number and a unit, such as \"30s\", \"5m\" or \"168h\"", text)
	}
	*d = Duration(v)
	return nil
}

// D is the value as the standard library's type.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// Size is a number of bytes that the file writes as 65536 or "64KiB".
type Size int64

// Binary units.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

var units = []struct {
	name string
	size Size
}{
	{"KiB", KiB}, {"MiB", MiB}, {"GiB", GiB}, {"TiB", TiB}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// UnmarshalText reads a whole number of bytes with an optional unit.
func (s *Size) UnmarshalText(text []byte) error {
	t := string(text)
	digits := len(t) - len(strings.TrimLeft(t, "0123456789"))
	unit := strings.TrimPrefix(t[digits:], " ")
	for _, u := range units {
		if unit != u.name {
			continue
		}
		n, err := strconv.ParseInt(t[:digits], 10, 64)
		if err != nil || n > math.MaxInt64/int64(u.size) {
			break
		}
		*s = Size(n) * u.size
		return nil
	}
	return fmt.Errorf("%q is not a size; write bytes, or a whole number and a unit, such as \"64KiB\" or \"4GiB\"", t)
}

// String writes the size in the greatest binary unit that divides it.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if u := units[i]; s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
