package cli

import (
	"context"
	"io"

	"github.com/witan-adp/witan/internal/inspect"
	"github.com/witan-adp/witan/internal/remote"
)

// inspectRoom verifies a room at a host or a mirror.
func (c *client) inspectRoom(ctx context.Context, p remote.Room) (*inspect.Inspection, error) {
	in := inspect.New(p.URL())
	bar := newProgress(c.err, "verifying")
	in.Progress = bar.at
	err := in.Room(ctx, remote.Place{C: &c.Client, P: p}, p.ID)
	bar.end()
	return in, err
}

// stream verifies an archive of size bytes (0: not known) that is read from r.
func (c *client) stream(ctx context.Context, in *inspect.Inspection, doing string, r io.Reader, size int64) error {
	bar := newProgress(c.err, doing)
	in.Progress, in.Work = bar.at, &inspect.Counter{R: r, Total: size}
	err := in.Stream(ctx, in.Work)
	bar.end()
	return err
}
