package index

import (
	"cmp"
	"slices"
	"sync"
)

// Lists are paged over the snapshot of their first page, so that rooms that change
// meanwhile are neither listed twice nor missed. Few snapshots are held, and not for
// long, since one keeps the columns of all that has changed since. A list whose
// snapshot is gone goes on over what there is now.
const (
	maxSnapshots = 8
	snapshotAge  = 5 * 60_000 // ms since it was used last
)

type snapshots struct {
	mu   sync.Mutex
	list []*heldView
}

type heldView struct {
	*view
	used int64
}

// hold keeps a view for the pages that follow.
func (s *snapshots) hold(v *view, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(now)
	for _, h := range s.list {
		if h.version == v.version {
			h.used = now
			return
		}
	}
	if len(s.list) >= maxSnapshots {
		oldest := slices.MinFunc(s.list, func(a, b *heldView) int { return cmp.Compare(a.used, b.used) })
		s.list = slices.DeleteFunc(s.list, func(h *heldView) bool { return h == oldest })
	}
	s.list = append(s.list, &heldView{v, now})
}

// get is a view that is still held, or nil.
func (s *snapshots) get(version uint64, now int64) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(now)
	for _, h := range s.list {
		if h.version == version {
			h.used = now
			return h.view
		}
	}
	return nil
}

// tidy lets go of what nobody asked for, for as long as it is kept.
func (s *snapshots) tidy(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(now)
}

// drop needs mu.
func (s *snapshots) drop(now int64) {
	s.list = slices.DeleteFunc(s.list, func(h *heldView) bool { return now-h.used > snapshotAge })
}
