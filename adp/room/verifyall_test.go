package room_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

const pipelineRoom = "d8ftedhpqhsusbg001tg"

// pipelineChain is an active public room with n records, as their texts.
func pipelineChain(t testing.TB, n int) [][]byte {
	t.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32))
	const start = 1779753600000
	texts, last := make([][]byte, 0, n), (*adp.Record)(nil)
	for i := int64(1); i <= int64(n); i++ {
		d := adp.Draft{Protocol: adp.Protocol, Type: room.Create, CreatedAt: start, Nonce: i,
			Payload: map[string]any{"topic": "Pipeline", "visibility": "public", "start_time": start, "end_time": start + 3600_000}}
		pre := ""
		if last != nil {
			pre = last.Hash
			d.Type, d.RoomID, d.BaseSeq, d.BaseHash = room.Message, pipelineRoom, last.Seq, last.Hash
			d.Payload = map[string]any{"content_type": "text/plain", "content": fmt.Sprint("message ", i)}
		}
		e, err := adp.Sign(key, d)
		if err != nil {
			t.Fatal(err)
		}
		last = adp.NewRecord(e, pipelineRoom, i, pre, start+i)
		texts = append(texts, last.JSON())
	}
	return texts
}

// from hands texts out one by one, then end.
func from(texts [][]byte, end error) func() ([]byte, error) {
	i := 0
	return func() ([]byte, error) {
		if i == len(texts) {
			return nil, end
		}
		i++
		return texts[i-1], nil
	}
}

func TestVerifyAllEqualsOneByOne(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 300} {
		texts := pipelineChain(t, n)
		alone := room.NewVerifier(pipelineRoom, nil)
		for _, text := range texts {
			v, err := adp.ScanDepth(text, adp.RecordDepth)
			if err != nil {
				t.Fatal(err)
			}
			r, err := adp.ParseRecord(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := alone.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		for _, workers := range []int{0, 1, 7} {
			v, reached, seen := room.NewVerifier(pipelineRoom, nil), int64(-1), int64(0)
			p := room.Pipeline{Workers: workers, Progress: func(done int64) {
				if done < reached {
					t.Errorf("progress ran back from %d to %d", reached, done)
				}
				reached = done
			}, Each: func(r *adp.Record) {
				if seen++; r.Seq != seen {
					t.Errorf("record %d came as number %d", r.Seq, seen)
				}
			}}
			if err := p.Run(t.Context(), from(texts, io.EOF), v); err != nil {
				t.Fatalf("%d records, %d workers: %v", n, workers, err)
			}
			if v.Digest.Summary() != alone.Digest.Summary() || v.Counts[room.Allowed] != int64(n) {
				t.Errorf("%d records, %d workers: %+v, one by one %+v", n, workers, v.Digest.Summary(), alone.Digest.Summary())
			}
			if reached != int64(n) || seen != int64(n) {
				t.Errorf("%d records, %d workers: progress %d, each %d", n, workers, reached, seen)
			}
		}
	}
}

func TestVerifyAllSaysWhereItBreaks(t *testing.T) {
	good := pipelineChain(t, 200)
	swap := func(i int, text []byte) [][]byte {
		out := append([][]byte(nil), good...)
		out[i] = text
		return out
	}
	forged := func(i int) []byte { // another key's signature over the same hash
		text := string(good[i])
		at := strings.Index(text, `"signature":"`) + len(`"signature":"`)
		sig := ed25519.Sign(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, 32)), []byte("another message"))
		return []byte(text[:at] + adp.Encode(sig) + text[at+adp.SignatureLen:])
	}
	for name, c := range map[string]struct {
		texts  [][]byte
		seq    int64
		reason string
	}{
		"not JSON":               {swap(99, []byte(`{"seq":`)), 100, ""},
		"altered content":        {swap(70, bytes.Replace(good[70], []byte("message 71"), []byte("message 17"), 1)), 71, "invalid_event_hash"},
		"foreign signature":      {swap(149, forged(149)), 150, "invalid_signature"},
		"missing":                {append(append([][]byte(nil), good[:63]...), good[64:]...), 64, "expected seq 64"},
		"repeated":               {append(append([][]byte(nil), good[:64]...), good[63:]...), 65, "expected seq 65"},
		"swapped":                {append(append(append([][]byte(nil), good[:9]...), good[10], good[9]), good[11:]...), 10, "expected seq 10"},
		"no creation":            {good[1:], 1, "expected seq 1"},
		"two faults, first link": {append(append([][]byte(nil), good[:9]...), good[10], []byte("x")), 10, "expected seq 10"},
	} {
		v := room.NewVerifier(pipelineRoom, nil)
		err := room.VerifyAll(t.Context(), from(c.texts, io.EOF), v, 3, nil)
		var broken *room.Broken
		if !errors.As(err, &broken) || broken.Seq != c.seq || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v, want seq %d and %q", name, err, c.seq, c.reason)
		}
		if v.State.Last.Seq != c.seq-1 {
			t.Errorf("%s: taken up to %d, want all before %d", name, v.State.Last.Seq, c.seq)
		}
	}
}

func TestVerifyAllPassesOnWhatNextSays(t *testing.T) {
	texts, cut := pipelineChain(t, 100), errors.New("the line went dead")
	v := room.NewVerifier(pipelineRoom, nil)
	if err := room.VerifyAll(t.Context(), from(texts, cut), v, 2, nil); err != cut {
		t.Errorf("answered %v", err)
	}
	if v.State.Last.Seq != 100 {
		t.Errorf("%d of the 100 records before the error were taken", v.State.Last.Seq)
	}
}

// In a synctest bubble: a goroutine that stays behind fails the test.
func TestVerifyAllEndsWithItsContext(t *testing.T) { synctest.Test(t, endsWithItsContext) }

func endsWithItsContext(t *testing.T) {
	texts, gone := pipelineChain(t, 80), errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	i := 0
	next := func() ([]byte, error) { // an endless source
		if i++; i == 1000 {
			cancel(gone)
		}
		return texts[min(i-1, 79)], nil
	}
	err := room.VerifyAll(ctx, next, room.NewVerifier(pipelineRoom, nil), 2, nil)
	var broken *room.Broken
	if !errors.Is(err, gone) && !errors.As(err, &broken) { // the repeated record may be met first
		t.Errorf("answered %v", err)
	}
	if i > 1001 {
		t.Errorf("next was called %d times after the end", i-1000)
	}

	cancelled, stop := context.WithCancelCause(t.Context())
	stop(gone)
	if err := room.VerifyAll(cancelled, from(texts, io.EOF), room.NewVerifier(pipelineRoom, nil), 2, nil); !errors.Is(err, gone) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func BenchmarkVerifyAll(b *testing.B) {
	texts := pipelineChain(b, 2000)
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprint("workers=", workers), func(b *testing.B) {
			for b.Loop() {
				if err := room.VerifyAll(b.Context(), from(texts, io.EOF), room.NewVerifier(pipelineRoom, nil), workers, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*2000/b.Elapsed().Seconds(), "records/s")
		})
	}
}
