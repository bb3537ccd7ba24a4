package replica

import (
	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// PutBranch adds records of the other story of a fork to a batch that goes out
// with Save. They are kept beside the log and never served as it.
func (r *Replica) PutBranch(b *store.Batch, recs []*adp.Record) {
	for _, rec := range recs {
		b.Put(store.Branch(r.ID, rec.Seq), rec.JSON())
	}
}

// Branch gives the kept records of the other story of a fork, in seq order, up
// to a number.
func (r *Replica) Branch(limit int) (recs [][]byte, err error) {
	err = r.set.st.View(func(rd store.Reader) error {
		from, to := store.BranchesOf(r.ID)
		return rd.Scan(from, to, func(_, value []byte) bool {
			if len(recs) < limit {
				recs = append(recs, append([]byte(nil), value...))
			}
			return len(recs) < limit
		})
	})
	return recs, err
}
