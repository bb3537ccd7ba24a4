package tilelog

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// TileWidth is the number of hashes in a full tile, and of entries in a full
// bundle.
const TileWidth = 256

// maxLevel is the highest level of a tile that a tree of 2^63 leaves has.
const maxLevel = 7

// Tile names a tile of hashes, or a bundle of entries. Level 0 holds the hashes
// of the leaves; level L the roots of the full tiles below it.
type Tile struct {
	Entries bool // a bundle, whose level is 0
	Level   int
	Index   uint64
	Width   int // 1 … 256
}

// Path is the path of a tile under the prefix of its log: tile/<L>/<N>[.p/<W>],
// with "entries" for L in a bundle, and N in groups of three digits.
func (t Tile) Path() string {
	n := fmt.Sprintf("%03d", t.Index%1000)
	for i := t.Index / 1000; i > 0; i /= 1000 {
		n = fmt.Sprintf("x%03d/%s", i%1000, n)
	}
	level := "entries"
	if !t.Entries {
		level = strconv.Itoa(t.Level)
	}
	if t.Width == TileWidth {
		return "tile/" + level + "/" + n
	}
	return "tile/" + level + "/" + n + ".p/" + strconv.Itoa(t.Width)
}

// ParsePath reads the one path that Path gives a tile.
func ParsePath(path string) (t Tile, err error) {
	if len(path) > 80 {
		return t, malformed("the path %.80q", path)
	}
	rest, ok := strings.CutPrefix(path, "tile/")
	level, n, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 {
		return t, malformed("the path %q", path)
	}
	if t.Entries = level == "entries"; !t.Entries {
		l, err := number(level)
		if err != nil || l > maxLevel {
			return Tile{}, malformed("the level of %q", path)
		}
		t.Level = int(l)
	}
	n, width, partial := strings.Cut(n, ".p/")
	if t.Width = TileWidth; partial {
		w, err := number(width)
		if err != nil || w < 1 || w >= TileWidth {
			return Tile{}, malformed("the width of %q", path)
		}
		t.Width = int(w)
	}
	groups := strings.Split(n, "/")
	for i, g := range groups {
		if i < len(groups)-1 {
			if g, ok = strings.CutPrefix(g, "x"); !ok {
				return Tile{}, malformed("the index of %q", path)
			}
		}
		d, err := strconv.ParseUint(g, 10, 64)
		if err != nil || len(g) != 3 || t.Index > math.MaxInt64/1000-1 {
			return Tile{}, malformed("the index of %q", path)
		}
		t.Index = t.Index*1000 + d
	}
	if t.Path() != path {
		return Tile{}, malformed("the path %q is not in its one form", path)
	}
	return t, nil
}

// within tells whether a log of a size has the tile.
func (t Tile) within(size uint64) bool {
	if t.Level > maxLevel || t.Index > math.MaxInt64/TileWidth {
		return false
	}
	return t.Index*TileWidth+uint64(t.Width) <= size>>(8*t.Level)
}

// MaxEntry bounds one entry, in bytes: its length stands in two.
const MaxEntry = math.MaxUint16

// AppendEntry adds an entry to a bundle: its length, big endian, and its bytes.
func AppendEntry(bundle, entry []byte) ([]byte, error) {
	if len(entry) > MaxEntry {
		return nil, fmt.Errorf("tilelog: an entry of %d bytes; %d is the limit", len(entry), MaxEntry)
	}
	return append(binary.BigEndian.AppendUint16(bundle, uint16(len(entry))), entry...), nil
}

// ParseBundle gives the entries of a bundle of a known width.
func ParseBundle(bundle []byte, width int) ([][]byte, error) {
	var entries [][]byte
	for rest := bundle; len(rest) > 0; {
		if len(rest) < 2 {
			return nil, malformed("the bundle ends inside a length")
		}
		n := int(binary.BigEndian.Uint16(rest))
		if rest = rest[2:]; len(rest) < n {
			return nil, malformed("the bundle ends inside an entry")
		}
		entries, rest = append(entries, rest[:n:n]), rest[n:]
	}
	if len(entries) != width {
		return nil, malformed("the bundle has %d entries, not %d", len(entries), width)
	}
	return entries, nil
}
