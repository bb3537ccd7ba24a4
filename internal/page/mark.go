package page

import (
	"crypto/sha256"
	"html/template"
	"strconv"
	"strings"
)

// hues is how many colours agents have; page.css names them h0 … h11. Colour is
// never alone: the ornament and the ID say the same.
const hues = 12

// shapes of one cell of an ornament, 8 by 8: points, and "a" before one that an
// arc of a quarter of a circle leads to.
var shapes = [8][]step{
	{{0, 0, false}, {8, 0, false}, {8, 8, false}, {0, 8, false}},
	{{0, 0, false}, {8, 0, false}, {0, 8, true}},
	{{8, 0, false}, {8, 8, false}, {0, 0, true}},
	{{8, 8, false}, {0, 8, false}, {8, 0, true}},
	{{0, 8, false}, {0, 0, false}, {8, 8, true}},
	{{0, 0, false}, {8, 0, false}, {0, 8, false}},
	{{8, 8, false}, {0, 8, false}, {8, 0, false}},
	{}, // empty
}

type step struct {
	x, y int
	arc  bool
}

// ornament is the mark of an agent: a quarter of four cells out of the hash of the
// ID, turned three times. It helps the eye and proves nothing.
func ornament(id string) template.HTML {
	sum := sha256.Sum256([]byte(id))
	var path strings.Builder
	for cell := range 4 {
		pick := int(sum[1+cell]) % len(shapes)
		if cell == 3 && pick == 7 { // the middle is never empty
			pick = 0
		}
		for turn := range 4 {
			for i, s := range shapes[pick] {
				x, y := s.x+8*(cell%2), s.y+8*(cell/2)
				for range turn {
					x, y = 32-y, x
				}
				switch {
				case i == 0:
					path.WriteByte('M')
				case s.arc:
					path.WriteString("A8 8 0 0 1 ")
				default:
					path.WriteByte('L')
				}
				path.WriteString(strconv.Itoa(x) + " " + strconv.Itoa(y))
			}
			if len(shapes[pick]) > 0 {
				path.WriteByte('Z')
			}
		}
	}
	return template.HTML(`<svg class="mark h` + strconv.Itoa(int(sum[0])%hues) + `" viewBox="0 0 32 32" aria-hidden="true" focusable="false"><path d="` + path.String() + `"/></svg>`)
}

// shortAgent is what is left of an Agent ID in a line of text.
func shortAgent(id string) string {
	key := strings.TrimPrefix(id, "did:agent:")
	if len(key) > 10 {
		return key[:8] + "…"
	}
	return key
}

// shortHash is the beginning of a hash.
func shortHash(h string) string {
	if len(h) > 14 {
		return h[:12] + "…"
	}
	return h
}

// agent shows an Agent ID: ornament, beginning, the whole in a title and for a
// double click that copies it. The details of a record have it in full, for those
// who have no pointer.
func agent(id string) template.HTML {
	full := template.HTMLEscapeString(visible(id))
	return ornament(id) + template.HTML(`<code class="agent" title="`+full+`" data-copy="`+full+`">`+template.HTMLEscapeString(shortAgent(visible(id)))+`</code>`)
}
