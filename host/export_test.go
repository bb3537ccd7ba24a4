package host

import (
	"context"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/replica"
)

// Accepted answers for an envelope that was seen at a seq.
func (h *Host) Accepted(ctx context.Context, r *replica.Replica, e *adp.Envelope, seq int64) error {
	return h.accepted(ctx, r, e, seq)
}

// Transition follows a change that time made, as the scheduler does.
func (h *Host) Transition(ctx context.Context, r *replica.Replica) { h.transition(ctx, r) }

// Counted is how many creators are counted.
func (h *Host) Counted() int {
	h.usage.Lock()
	defer h.usage.Unlock()
	return len(h.usage.byCreator)
}
