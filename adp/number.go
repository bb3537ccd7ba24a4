package adp

import (
	"math"
	"strconv"

	"github.com/gowebpki/jcs"
)

// number scans a number; s.pos is at its first byte.
func (s *scanner) number() (canonical bool, err error) {
	src, from := s.src, s.pos
	i := from
	if src[i] == '-' {
		i++
	}
	first := i
	i = skipDigits(src, i)
	digits := i - first
	if digits == 0 || digits > 1 && src[first] == '0' {
		s.pos = i
		return false, s.fail("a number has digits, and no leading zero")
	}
	whole := true
	if i < len(src) && src[i] == '.' {
		whole = false
		at := i + 1
		if i = skipDigits(src, at); i == at {
			s.pos = i
			return false, s.fail("digits should follow the point")
		}
	}
	if i < len(src) && (src[i] == 'e' || src[i] == 'E') {
		whole = false
		if i++; i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		at := i
		if i = skipDigits(src, at); i == at {
			s.pos = i
			return false, s.fail("digits should follow the exponent")
		}
	}
	text := src[from:i]
	if whole && digits <= 15 {
		s.pos = i
		return !(text[0] == '-' && text[1] == '0'), nil
	}
	f, err := parseDouble(text)
	if err != nil {
		return false, s.fail("a number that no double holds")
	}
	if math.Abs(f) > MaxInt { // every double from 2^53 on is an integer
		return false, s.fail("an integer outside ±(2^53-1)")
	}
	s.pos = i
	return formatDouble(f) == string(text), nil
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

// formatDouble is the ECMAScript text of a finite double (RFC 8785 §3.2.2.3).
func formatDouble(f float64) string {
	text, err := jcs.NumberToJSON(f)
	if err != nil {
		panic("adp: a scanned number is finite: " + err.Error())
	}
	return text
}

// canonicalNumber is the JCS text of a number that number has accepted.
func canonicalNumber(text []byte) string {
	f, err := parseDouble(text)
	if err != nil {
		panic("adp: a scanned number is a double: " + err.Error())
	}
	return formatDouble(f)
}

// parseDouble is the double nearest to the number that text writes in the
// grammar of JSON; out of range is an error.
//
// strconv errs on long texts, where other readers do not: it miscounts more
// than 800 digits before the point (1, 800 zeros and e-800 give 0.1) and takes
// no more of an exponent than its digits up to 10000. So a long number is first
// written as d.ddd with a short exponent.
func parseDouble(text []byte) (float64, error) {
	e := len(text)
	for i, c := range text {
		if c == 'e' || c == 'E' {
			e = i
			break
		}
	}
	if len(text) <= 400 && len(text)-e <= len("e+9999") {
		return strconv.ParseFloat(string(text), 64)
	}
	power := int64(0)
	if e < len(text) {
		power = parsePower(text[e+1:])
	}
	mantissa := text[:e]
	b := make([]byte, 0, len(mantissa)+8)
	if mantissa[0] == '-' {
		b, mantissa = append(b, '-'), mantissa[1:]
	}
	seen, fraction := false, false
	for _, c := range mantissa {
		switch {
		case c == '.':
			fraction = true
			continue
		case !seen && c == '0':
			if fraction {
				power--
			}
			continue
		case !seen:
			seen = true
			if fraction {
				power--
			}
			b = append(b, c, '.')
			continue
		case !fraction:
			power++
		}
		b = append(b, c)
	}
	if !seen {
		return 0, nil
	}
	b = append(b, '0', 'e') // a digit behind the point, even if there was none
	b = strconv.AppendInt(b, max(-9999, min(9999, power)), 10)
	return strconv.ParseFloat(string(b), 64)
}

// parsePower reads an exponent, and stops counting far beyond what a text of
// 4 GiB can undo.
func parsePower(text []byte) (power int64) {
	negative := text[0] == '-'
	if negative || text[0] == '+' {
		text = text[1:]
	}
	for _, c := range text {
		if power < 1<<40 {
			power = power*10 + int64(c-'0')
		}
	}
	if negative {
		return -power
	}
	return power
}
