package store

const (
	kindTailHead  = 'D'
	kindTailTile  = 'd'
	kindTailIndex = 'x'
	kindClaim     = 'g'
)

// TailHead is how far the log of an origin was read.
func TailHead(origin string) []byte    { return stringsKey(kindTailHead, origin) }
func TailHeadRange() (from, to []byte) { return under([]byte{kindTailHead}) }

// TailTile is a tile of what was read of the log of an origin, in one of its generations, as far as it is filled.
func TailTile(origin string, generation, level, index uint64) []byte {
	return appendNumber(appendNumber(appendNumber(stringsKey(kindTailTile, origin), generation), level), index)
}

// TailTileRange holds the tiles of one origin, or of all for an empty one.
func TailTileRange(origin string) (from, to []byte) { return underStrings(kindTailTile, origin) }

// TailIndex leads from the hash of an envelope to its place in the log of an origin that was read.
func TailIndex(origin, hash string) []byte { return stringsKey(kindTailIndex, origin, hash) }

// TailIndexRange holds the places in the log of one origin, or of all for an empty one.
func TailIndexRange(origin string) (from, to []byte) { return underStrings(kindTailIndex, origin) }

// Claim is what an origin has signed last of one of its logs, or of one of its rooms: line is the origin line of the
// checkpoints, or empty for the heads of a room.
func Claim(origin, roomID, genesis, line string) []byte {
	return stringsKey(kindClaim, origin, roomID, genesis, line)
}

// ClaimRange holds the claims of one origin, or of all for an empty one.
func ClaimRange(origin string) (from, to []byte) { return underStrings(kindClaim, origin) }

// ParseClaim returns the parts of a Claim key.
func ParseClaim(key []byte) (origin, roomID, genesis, line string, err error) {
	p := parse(key, kindClaim)
	origin, roomID, genesis, line = p.text(), p.text(), p.text(), p.text()
	return origin, roomID, genesis, line, p.end()
}
