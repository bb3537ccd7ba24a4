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

// ParseWithheld returns the parts of a Withheld key.
func ParseWithheld(key []byte) (id uint64, seq int64, err error) {
	p := parse(key, kindWithheld)
	id, seq = p.number(), p.signed()
	return id, seq, p.end()
}
