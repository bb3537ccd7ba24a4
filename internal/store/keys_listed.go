package store

const kindListed = 'V'

// Listed is what a host says about a room that it lists and that is not copied.
func Listed(origin, roomID string) []byte { return stringsKey(kindListed, origin, roomID) }

// ListedRange holds the rooms of one host, or of all for an empty origin.
func ListedRange(origin string) (from, to []byte) { return underStrings(kindListed, origin) }

// ParseListed returns the parts of a Listed key.
func ParseListed(key []byte) (origin, roomID string, err error) {
	p := parse(key, kindListed)
	origin, roomID = p.text(), p.text()
	return origin, roomID, p.end()
}
