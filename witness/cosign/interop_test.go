package cosign

import (
	"crypto/ed25519"
	"fmt"
	"testing"
	"time"

	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
	"github.com/witan-adp/witan/witness/cosign/cosigntest"
)

// ours is a log of ours on a disk, with its Collector.
type ours struct {
	*asker
	dir  string
	log  *tilelog.Log
	http *fetch.Client
	end  func()
}

// open opens the log, makes it grow, and lets the Collector work.
func (o *ours) open(t *testing.T, story string, n int) {
	t.Helper()
	o.st = must[*store.Store](t)(store.Open(store.Options{Dir: o.dir}))
	o.log = must[*tilelog.Log](t)(tilelog.Open(o.st, func(int) string { return logOrigin }, func(int) ed25519.PrivateKey { return key("log") }))
	c := must[*Collector](t)(NewCollector(CollectorOptions{Witnesses: o.keys, Store: o.st, Do: o.http.Do, Checkpoint: o.log.Checkpoint, Prove: o.log.ProveGrowth,
		Every: time.Millisecond, RetryMin: 100 * time.Millisecond, RetryMax: time.Second}))
	o.c = c
	o.append(t, story, n)
	stop := o.run()
	o.end = func() {
		stop()
		if err := o.st.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (o *ours) append(t *testing.T, story string, n int) {
	t.Helper()
	for range n {
		_, head := o.log.Head()
		var b store.Batch
		entry := fmt.Appendf(nil, `{"story":%q,"entry":%d}`, story, head.Size)
		p := must[*tilelog.Pending](t)(o.log.Append(&b, tilelog.Entry{Name: string(entry), Data: entry}))
		if err := o.st.Commit(&b); err != nil {
			t.Fatal(err)
		}
		o.log.Publish(p)
	}
	o.c.Grown()
}

// cosigned waits until both have cosigned the newest checkpoint.
func (o *ours) cosigned(t *testing.T, when string) {
	t.Helper()
	o.until("both witnesses "+when, func() bool { return len(o.cosigners(o.c.Cosigned(o.log.Checkpoint()))) == len(o.keys) })
	t.Logf("%s:\n%s", when, o.c.Cosigned(o.log.Checkpoint()))
}

// Two witnesses that others wrote cosign a log of ours while it grows, after either
// side was started again, and refuse a fork. `make interop` installs them.
func TestInterop(t *testing.T) {
	bin := cosigntest.Programs(t)
	logKey := verifier(t, logOrigin, cosignature.Log, "log")
	witnesses := []*cosigntest.Witness{cosigntest.Litewitness(t, bin, logKey), cosigntest.Omniwitness(t, bin, logKey)}
	var keys []Asked
	for _, w := range witnesses {
		w.Start(t)
		keys = append(keys, Asked{w.URL, w.Key})
	}
	client := fetch.New(fetch.Options{AllowPrivate: true})
	t.Cleanup(client.CloseIdle)
	newOurs := func(dir string) *ours {
		return &ours{asker: &asker{t: t, keys: keys, asked: map[string]int{}}, dir: dir, http: client}
	}
	o := newOurs(t.TempDir())
	o.open(t, "a", 1)
	o.cosigned(t, "the first entry")
	for _, n := range []int{1, 5, 250, 300} {
		o.append(t, "a", n)
		o.cosigned(t, fmt.Sprintf("%d more entries", n))
	}
	o.end()
	o.open(t, "a", 0)
	if names := o.cosigners(o.c.Cosigned(o.log.Checkpoint())); len(names) != 2 {
		t.Errorf("after a restart the cosignatures are those of %v", names)
	}
	o.append(t, "a", 3)
	o.cosigned(t, "after a restart of ours")
	for _, f := range witnesses {
		f.Stop(t)
		f.Start(t)
	}
	o.append(t, "a", 4)
	o.cosigned(t, "after a restart of theirs")
	_, head := o.log.Head()
	o.end()

	// the same key signs another story: longer, as long, and shorter
	for what, n := range map[string]int{"a longer fork": 5, "a fork of the same size": 0, "a shorter fork": -5} {
		fork := newOurs(t.TempDir())
		fork.open(t, "b", int(head.Size)+n)
		fork.until("both witnesses to refuse "+what, func() bool {
			all := fork.c.Status()
			return all[0].Error != "" && all[1].Error != ""
		})
		if names := fork.cosigners(fork.c.Cosigned(fork.log.Checkpoint())); len(names) != 0 {
			t.Errorf("%s is cosigned by %v", what, names)
		}
		for _, s := range fork.c.Status() {
			t.Logf("%s is refused by %s: %s", what, s.Witness, s.Error)
		}
		fork.end()
	}

	// and what they cosigned goes on
	o.open(t, "a", 2)
	o.cosigned(t, "after the forks")
	o.end()
}
