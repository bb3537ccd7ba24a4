package room

import (
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

// Every record that may be withheld leaves the room in the same state without its
// envelope as with it.
func TestRedactedReplaysToTheSameState(t *testing.T) {
	w := peopled(t)
	w.must(speaker, Message, say("one"))
	w.must(speaker, "a.sign", obj{})
	w.must(creator, "a.lead", obj{})
	w.force(w.event(stranger, Message, say("a violation"), nil))
	w.must(speaker, "review.finding", obj{"severity": "low"})
	w.must(speaker, Message, say("two"))
	w.force(w.event(speaker, "a.unknown", obj{}, nil))
	w.force(w.event(creator, Close, obj{"reason": "done"}, nil))
	for _, only := range []int64{0, 6} { // all that may be, or one
		v := NewVerifier(testRoom, nil)
		n := int64(0)
		for _, r := range w.records {
			if CanBeWithheld(r.Envelope.Type) && (only == 0 || r.Seq == only) {
				var err error
				if r, err = r.Redact(); err != nil {
					t.Fatal(err)
				}
				n++
			}
			if err := v.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if v.Counts[Withheld] != n || n == 0 || v.Digest.Summary().Withheld != n {
			t.Errorf("%d withheld, counts %v", n, v.Counts)
		}
		if got, want := snap(t, v.State), w.snapshot(); got != want {
			t.Errorf("the state differs:\n%s\n%s", got, want)
		}
	}
}

func TestBuiltinsCannotBeWithheld(t *testing.T) {
	w := peopled(t)
	for i, r := range w.records {
		red, err := r.Redact()
		if err != nil {
			t.Fatal(err)
		}
		v := NewVerifier(testRoom, nil)
		for _, before := range w.records[:i] {
			if err := v.Add(before); err != nil {
				t.Fatal(err)
			}
		}
		err = v.Add(red)
		if err == nil || i > 0 && !strings.Contains(err.Error(), "may not be withheld") {
			t.Errorf("%s: %v", r.Envelope.Type, err)
		}
		if v.State.Last.Seq != int64(i) {
			t.Errorf("%s was taken", r.Envelope.Type)
		}
	}
}

func TestPipelineCountsWithheld(t *testing.T) {
	w := peopled(t)
	w.must(speaker, Message, say("one"))
	red, err := w.records[4].Redact()
	if err != nil {
		t.Fatal(err)
	}
	texts := [][]byte{}
	for _, r := range append(append([]*adp.Record{}, w.records[:4]...), red) {
		texts = append(texts, r.JSON())
	}
	v := NewVerifier(testRoom, nil)
	i := 0
	err = VerifyAll(t.Context(), func() ([]byte, error) {
		if i == len(texts) {
			return nil, errEnd
		}
		i++
		return texts[i-1], nil
	}, v, 2, nil)
	if err != errEnd || v.Counts[Withheld] != 1 || v.Counts[Allowed] != 4 || len(v.Findings()) != 1 || v.Findings()[0].Seq != 5 {
		t.Errorf("%v %v %v", err, v.Counts, v.Findings())
	}
}

var errEnd = adp.Errorf(adp.Internal, "the end")
