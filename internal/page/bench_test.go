package page

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkRoomPage renders a full page of Markdown, with 2,000 records behind it:
// read for the first time, and read again.
func BenchmarkRoomPage(b *testing.B) {
	w := newWorld(&testing.T{})
	for i := range pageRecords + aheadMost {
		w.markdown("ada", fmt.Sprintf("Message %d, with *some* `code`, a [link](https://a.example) and\n\n- a list\n- of two\n\n%s", i, strings.Repeat("words ", 80)))
	}
	ask := func(b *testing.B, s *Site) {
		r := httptest.NewRequest("GET", thePlace, nil).WithContext(context.Background())
		r.SetPathValue("authority", theHost)
		r.SetPathValue("room_id", roomID)
		if err := s.serveRoom(httptest.NewRecorder(), r); err != nil {
			b.Fatal(err)
		}
	}
	options := Options{Source: w, Now: func() int64 { return start }}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s := New(options)
			b.StartTimer()
			ask(b, s)
		}
	})
	b.Run("again", func(b *testing.B) {
		s := New(options)
		for b.Loop() {
			ask(b, s)
		}
	})
}
