package witness

import "github.com/witan-adp/witan/internal/replica"

// Pending tells whether our own attestation of a complete mirrored room is still to
// come, for which all of its records are needed.
func (w *Witness) Pending(r *replica.Replica) bool {
	row := r.Row()
	if !w.o.Sign || !w.o.Witness || !row.Archived || row.Dropped > 0 {
		return false
	}
	if !oneVersion(r) {
		return false // it is never attested
	}
	s := Subject(r.Key)
	hashes := w.statements(s)
	return !w.has(s, func(a *about) bool { return a.equivocated || a.attested(w.self, hashes) })
}
