package store

// Kinds of keys for what an operator keeps from view, or lets go.
const (
	kindWithheld = 'w'
	kindSealed   = 'W'
)

// Withheld says why a record of a replica is not shown.
func Withheld(id uint64, seq int64) []byte      { return seqKey(kindWithheld, id, seq) }
func WithheldRange(id uint64) (from, to []byte) { return under(numberKey(kindWithheld, id)) }

// Sealed is the original of a record that is not shown, where it is kept.
func Sealed(id uint64, seq int64) []byte      { return seqKey(kindSealed, id, seq) }
func SealedRange(id uint64) (from, to []byte) { return under(numberKey(kindSealed, id)) }

const kindKeeping = 'q'

// Keeping is what the operator, or who speaks for a room, said about copying and showing the rooms of an origin, or one of
// them; an empty room means all.
func Keeping(origin, roomID string) []byte { return stringsKey(kindKeeping, origin, roomID) }
func KeepingRange() (from, to []byte)      { return under([]byte{kindKeeping}) }

// ParseKeeping returns the parts of a Keeping key.
func ParseKeeping(key []byte) (origin, roomID string, err error) {
	p := parse(key, kindKeeping)
	origin, roomID = p.text(), p.text()
	return origin, roomID, p.end()
}

// ParseMeta returns the name of a Meta key.
func ParseMeta(key []byte) (name string, err error) {
	p := parse(key, kindMeta)
	name = p.text()
	return name, p.end()
}

const kindSample = 'z'

// Sample is a place for what was measured of the daemon. There are as many as are kept, and they are used again.
func Sample(place uint64) []byte     { return numberKey(kindSample, place) }
func SampleRange() (from, to []byte) { return under([]byte{kindSample}) }
