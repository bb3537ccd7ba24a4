package inspect_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/inspect"
	"github.com/witan-adp/witan/internal/inspect/inspecttest"
)

// asked is a Place without a network.
type asked struct{ *inspecttest.Served }

func (a asked) get(path string) (adp.Value, error) {
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", "/v1/rooms/"+inspecttest.RoomID+path, nil))
	if w.Code != 200 {
		return adp.Value{}, inspect.NotGiven{Err: fmt.Errorf("status %d", w.Code)}
	}
	return adp.ScanDepth(w.Body.Bytes(), adp.RecordDepth+24)
}

func (a asked) Resource(context.Context) (*inspect.Resource, error) {
	v, err := a.get("")
	if err != nil {
		return nil, err
	}
	return inspect.ParseResource(v, inspecttest.RoomID)
}

func (a asked) Manifest(context.Context) ([]byte, error) { return a.Served.Manifest, nil }

func (a asked) Records(_ context.Context, after int64, limit int) ([]adp.Value, error) {
	v, err := a.get(fmt.Sprintf("/events?after_seq=%d&limit=%d", after, limit))
	return slices.Collect(v.Elements()), err
}

func (a asked) Bundle(context.Context) (io.ReadCloser, error) {
	if a.Served.Bundle == nil {
		return nil, inspect.NotGiven{Err: fmt.Errorf("status 404")}
	}
	return io.NopCloser(bytes.NewReader(a.Served.Bundle)), nil
}

func said(b *inspecttest.Builder) *inspect.Said {
	sum := b.Sum()
	return &inspect.Said{Records: sum.Count, LastHash: sum.LastHash, Root: adp.Encode(sum.Root[:]), Verdict: "verified"}
}

func look(t *testing.T, s *inspecttest.Served, said *inspect.Said, archive bool) *inspect.Inspection {
	t.Helper()
	in := inspect.New("test")
	in.Said = said
	var err error
	if archive {
		err = in.Archive(t.Context(), asked{s}, inspecttest.RoomID)
	} else {
		err = in.Room(t.Context(), asked{s}, inspecttest.RoomID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// An honest host is borne out in full, whichever way the records are read.
func TestHonestHost(t *testing.T) {
	for _, over := range []bool{true, false} {
		for _, archive := range []bool{true, false} {
			b := inspecttest.Room(2100, over)
			in := look(t, b.Serve(), said(b), archive)
			r := in.Report()
			if r.Verdict != "verified" || r.Untrue != nil || r.Records != int64(len(b.Records)) || r.Authors != 2 || (r.Manifest == "matches") != over || (r.BundleCID != "") != over {
				t.Errorf("over %v, archive %v: %+v", over, archive, r)
			}
		}
	}
}

// Whatever a host does wrong, it is found, and a page that says "verified" all the same is contradicted.
func TestFaultyHost(t *testing.T) {
	for name, f := range inspecttest.Faults {
		b := inspecttest.Room(10, f.Over)
		s := b.Serve()
		f.Spoil(s)
		r := look(t, s, said(b), true).Report()
		if r.Verdict != "broken" && r.Verdict != "archive-mismatch" || r.Untrue == nil {
			t.Errorf("%s: %+v", name, r)
		}
		honest := &inspect.Said{Verdict: r.Verdict}
		if r := look(t, s, honest, true).Report(); r.Untrue != nil {
			t.Errorf("%s, and the page says so: %q", name, r.Untrue)
		}
	}
}

// A page that speaks of other records than there are is contradicted; one that is older than the room, or that warns, is not.
func TestSaid(t *testing.T) {
	b := inspecttest.Room(10, false)
	s := b.Serve()
	older := said(&inspecttest.Builder{Records: b.Records[:5]})
	other := adp.Encode(bytes.Repeat([]byte{7}, 32))
	for name, c := range map[string]struct {
		change func(*inspect.Said)
		want   string // "" when nothing is untrue
	}{
		"as it is":       {func(*inspect.Said) {}, ""},
		"older":          {func(p *inspect.Said) { *p = *older }, ""},
		"nothing":        {func(p *inspect.Said) { *p = inspect.Said{} }, ""},
		"a warning":      {func(p *inspect.Said) { p.Verdict = "forked" }, ""},
		"no root":        {func(p *inspect.Said) { p.Root = "" }, ""},
		"other root":     {func(p *inspect.Said) { p.Root = other }, "the root of 12 records is " + other},
		"other last":     {func(p *inspect.Said) { p.LastHash = other }, "record 12 is " + other},
		"more records":   {func(p *inspect.Said) { p.Records++ }, "there are 13 records; only 12"},
		"root of others": {func(p *inspect.Said) { p.Records = 11 }, "record 11 is"},
	} {
		p := said(b)
		c.change(p)
		r := look(t, s, p, true).Report()
		if all := strings.Join(r.Untrue, "; "); r.Verdict != "verified" || (c.want == "") != (all == "") || !strings.Contains(all, c.want) {
			t.Errorf("%s: %q", name, all)
		}
	}
}

// What is signed about the archive is held against it: agreement, contradiction, forgery, and what cannot be compared are told apart.
func TestSigned(t *testing.T) {
	b := inspecttest.Room(10, true)
	in := look(t, b.Serve(), nil, true)
	other := adp.Encode(bytes.Repeat([]byte{7}, 32))
	for name, c := range map[string]struct {
		text []byte
		want inspect.Signed
	}{
		"the same":     {b.Announce(3, nil), inspect.Signed{Agrees: true}},
		"another root": {b.Announce(3, map[string]any{"archive_root": other}), inspect.Signed{Reason: "archive_root is"}},
		"another room": {b.Announce(3, map[string]any{"genesis": other}), inspect.Signed{Reason: "genesis is"}},
		"fewer":        {b.Announce(3, map[string]any{"last_seq": 4}), inspect.Signed{Partial: true, Reason: "it is about 4 records"}},
		"forged":       {bytes.Replace(b.Announce(3, nil), []byte(inspecttest.RoomID), []byte("another"), 1), inspect.Signed{Forged: true, Reason: "invalid_event_hash"}},
		"not signed":   {[]byte(`{"type":"archive.announce"}`), inspect.Signed{Forged: true, Reason: "invalid_event"}},
	} {
		v, err := adp.Scan(c.text)
		if err != nil {
			t.Fatal(err)
		}
		s := in.CheckSigned(v)
		if s.Agrees != c.want.Agrees || s.Forged != c.want.Forged || s.Partial != c.want.Partial || !strings.Contains(s.Reason, c.want.Reason) || (s.Signer == "") != s.Forged {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
