package adp

import (
	"strings"
	"testing"
)

func TestCIDsKnownAnswers(t *testing.T) {
	var g struct {
		Digest string
		CIDs   []struct {
			Name, Text, Code string
			Codec            uint64
		} `json:"cids"`
	}
	golden(t, "cids.json", &g)
	want, err := DecodeHash(g.Digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range g.CIDs {
		codec, digest, err := ParseCID(c.Text)
		if c.Code != "" {
			if err == nil || codec != 0 || digest != [32]byte{} {
				t.Errorf("%s: %q was accepted: %v", c.Name, c.Text, err)
			}
			continue
		}
		if err != nil || codec != c.Codec || digest != want {
			t.Errorf("%s: codec %#x, digest %x, %v", c.Name, codec, digest, err)
		}
		if got := NewCID(c.Codec, want); got != c.Text {
			t.Errorf("%s: NewCID makes %s, want %s", c.Name, got, c.Text)
		}
	}
	// every other spelling of the last character, whose low bits are padding
	good := NewCID(CodecRaw, want)
	for _, c := range "abcdefghijklmnopqrstuvwxyz234567" {
		if text := good[:len(good)-1] + string(c); text != good {
			if _, d, err := ParseCID(text); err == nil && d == want {
				t.Errorf("%s is another text of the same digest", text)
			}
		}
	}
	if _, _, err := ParseCID("b" + strings.Repeat("a", 1<<20)); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Error(err)
	}
}
