package inspect

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/inspect/inspecttest"
)

// FuzzSource: whatever the input, it is taken apart to its end in bounded pieces, and what is wrong with it is a finding.
func FuzzSource(f *testing.F) {
	for _, name := range []string{"good", "records", "array", "array-open", "array-more", "empty-line", "cut-in-line", "respelled"} {
		f.Add(inspecttest.Archives()[name])
	}
	f.Add([]byte("[]"))
	f.Add([]byte("[1,2]x"))
	f.Add([]byte(" \n\t{\"type\":1}\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		e := newExact(bytes.NewReader(text))
		src, err := openSource(e)
		for n := 0; err == nil; n++ {
			var piece []byte
			if piece, err = src.next(); err == nil && (len(piece) == 0 || n > len(text)) {
				t.Fatalf("piece %d is %q", n, piece)
			}
		}
		var bad badInput
		switch {
		case err == io.EOF && e.n != int64(len(text)):
			t.Fatalf("%d of %d bytes were hashed", e.n, len(text))
		case err != io.EOF && !errors.As(err, &bad):
			t.Fatalf("ended with %v, which is no finding", err)
		}
	})
}

// No change of one byte in an archive goes unnoticed when its manifest is at hand, and none is a failure of ours.
func TestEveryByteCounts(t *testing.T) {
	good := inspecttest.Archives()["good"]
	check := func(text []byte) string {
		claim, err := adp.ParseClaim(inspecttest.Archives()["manifest"])
		if err != nil {
			t.Fatal(err)
		}
		in := New("test")
		in.Claim = claim
		if err := in.Stream(t.Context(), bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		return in.Report().Verdict
	}
	if v := check(good); v != "verified" {
		t.Fatalf("the good archive is %s", v)
	}
	for i := 0; i < len(good); i += 23 {
		text := bytes.Clone(good)
		text[i] ^= 1 << (i % 8)
		if v := check(text); v == "verified" {
			t.Errorf("byte %d changed from %q to %q: verified", i, good[i], text[i])
		}
	}
	for _, n := range []int{0, 1, len(good) / 2, len(good) - 1} {
		if v := check(good[:n]); v == "verified" {
			t.Errorf("cut to %d of %d bytes: verified", n, len(good))
		}
	}
}
