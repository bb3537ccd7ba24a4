package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/inspect"
	"github.com/witan-adp/witan/internal/remote"
)

const (
	longPoll   = 25 * time.Second
	quietPoll  = 2 * time.Second  // between polls of a host that answers at once
	streamIdle = 60 * time.Second // hosts send a heartbeat about every 15 s
	maxItem    = 4 << 20          // bytes of one item of a stream
)

// watcher follows one room from a place on.
type watcher struct {
	c    *client
	p    remote.Room
	at   remote.Link
	left int64 // records to show; 0 ends it
	back *backOff
}

func watchCommand(c *client) *cobra.Command {
	var after, number int64
	var live bool
	cmd := &cobra.Command{Use: "watch ROOM", Short: "Show records as they come, until the room ends or Ctrl-C",
		Example: `  witan room watch ROOM
  witan room watch ROOM --after 0 --json`, Args: cobra.ExactArgs(1),
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			r, err := c.Resource(ctx, p)
			if err != nil {
				return err
			}
			w := &watcher{c: c, p: p, at: remote.Link{RoomID: p.ID, Seq: r.Last.Seq, Hash: r.Last.Hash}, left: adp.MaxInt, back: &backOff{}}
			if after >= 0 {
				w.at = remote.Link{RoomID: p.ID, Seq: after}
			}
			if number > 0 {
				w.left = number
			}
			if r.Over() {
				if err := w.catchUp(ctx); err != nil || w.left == 0 {
					return err
				}
				c.notef("the room has ended")
				return nil
			}
			step := w.poll
			if live || r.Visibility != room.Public {
				step = w.stream
			}
			err = w.run(ctx, step)
			if ctx.Err() != nil { // Ctrl-C is how a person ends it
				return nil
			}
			return err
		})}
	cmd.Flags().Int64Var(&after, "after", -1, "begin behind this seq (default: with what comes from now on)")
	cmd.Flags().Int64Var(&number, "count", 0, "end after so many records")
	cmd.Flags().BoolVar(&live, "live", false, "use the live stream, which is for members; the default in rooms that are not public")
	return cmd
}

// errRoomOver ends a watch at the end of the room.
var errRoomOver = errors.New("the room is over")

// run repeats step, with waits that grow while the host cannot be reached.
func (w *watcher) run(ctx context.Context, step func(context.Context) error) error {
	for w.left > 0 {
		err := step(ctx)
		switch {
		case err == nil:
		case errors.Is(err, errRoomOver):
			w.c.notef("the room has ended")
			return nil
		case ctx.Err() != nil || !passing(err):
			return err
		default:
			d := w.back.next()
			w.c.notef("%v; again in %v", err, d.Round(100*time.Millisecond))
			if !wait(ctx, d) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// passing tells whether an error may be over soon.
func passing(err error) bool {
	if e, ok := errors.AsType[*remote.Error](err); ok {
		return e.Status >= 500 || e.Status == http.StatusTooManyRequests
	}
	switch fetch.KindOf(err) {
	case fetch.Refused, fetch.Unreachable, fetch.Timeout, fetch.Slow, fetch.Broken:
		return true
	}
	return false
}

// backOff doubles from 1 s to 30 s, with jitter.
type backOff struct{ d time.Duration }

func (b *backOff) next() time.Duration {
	b.d = min(max(2*b.d, time.Second), 30*time.Second)
	return b.d - time.Duration(rand.Int64N(int64(b.d)/4))
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// take checks and shows the next record.
func (w *watcher) take(v adp.Value) error {
	r, err := w.at.Take(v)
	if err != nil {
		return err
	}
	w.back.d = 0
	if err := w.c.showOne(r); err != nil {
		return err
	}
	if w.left--; w.left > 0 && (r.Envelope.Type == room.Close || r.Envelope.Type == room.Cancel) {
		return errRoomOver
	}
	return nil
}

// over tells whether nothing more can come.
func (w *watcher) over(ctx context.Context) (bool, error) {
	r, err := w.c.Resource(ctx, w.p)
	if err != nil {
		return false, err
	}
	return r.Over() && r.Last.Seq <= w.at.Seq, nil
}

// poll is one long poll (public rooms).
func (w *watcher) poll(ctx context.Context) error {
	began := time.Now()
	recs, err := w.c.Events(ctx, w.p, w.at.Seq, inspect.PageRecords, longPoll)
	if err != nil {
		return err
	}
	for _, v := range recs {
		if err := w.take(v); err != nil || w.left == 0 {
			return err
		}
	}
	if len(recs) > 0 {
		return nil
	}
	if over, err := w.over(ctx); err != nil || over {
		return errors.Join(err, ended(over))
	}
	if time.Since(began) < time.Second && !wait(ctx, quietPoll) {
		return ctx.Err()
	}
	return nil
}

func ended(over bool) error {
	if over {
		return errRoomOver
	}
	return nil
}

// catchUp reads what the history holds behind our place.
func (w *watcher) catchUp(ctx context.Context) error {
	for w.left > 0 {
		recs, err := w.c.Events(ctx, w.p, w.at.Seq, inspect.PageRecords, 0)
		if err != nil || len(recs) == 0 {
			return err
		}
		for _, v := range recs {
			if err := w.take(v); err != nil || w.left == 0 {
				return err
			}
		}
	}
	return nil
}

// stream subscribes, then reads the history behind our place, so that nothing falls in between (ADP §17.3), then follows until
// the stream ends.
func (w *watcher) stream(ctx context.Context) error {
	url := w.p.URL() + "/events/live"
	h, err := w.c.Token(url)
	if err != nil {
		return err
	}
	h.Set("Accept", "text/event-stream")
	s, err := w.c.HTTP.Stream(ctx, fetch.Request{URL: url, Header: h}, streamIdle)
	if err != nil {
		return remote.Unreachable(err)
	}
	defer s.Close()
	if s.Status != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(s, 64<<10))
		return remote.Refusal(s.Status, s.Header, body, url)
	}
	if err := w.catchUp(ctx); err != nil {
		return err
	}
	if w.left == 0 {
		return nil
	}
	err = items(s, func(event, data string) error {
		if event != "room.event" {
			return nil
		}
		v, err := adp.ScanDepth([]byte(data), adp.RecordDepth)
		if err != nil {
			return fmt.Errorf("an item of the stream is %w", err)
		}
		switch seq, _ := v.Get("seq").Int(); {
		case seq <= w.at.Seq: // the history had it
		case seq > w.at.Seq+1:
			err = w.catchUp(ctx)
		default:
			err = w.take(v)
		}
		if err == nil && w.left == 0 {
			return io.EOF
		}
		return err
	})
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return err
	}
	over, err := w.over(ctx)
	if err != nil || over {
		return errors.Join(err, ended(over))
	}
	return &fetch.Error{Kind: fetch.Broken, URL: url, Err: errors.New("the host ended the stream")}
}

// items reads server-sent events until the stream or take ends.
func items(r io.Reader, take func(event, data string) error) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), maxItem)
	event, data := "", []string(nil)
	for sc.Scan() {
		line := sc.Text()
		if line == "" {
			if data != nil {
				if err := take(event, strings.Join(data, "\n")); err != nil {
					return err
				}
			}
			event, data = "", nil
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			event = value
		case "data":
			data = append(data, value)
		}
	}
	return sc.Err()
}
