package room

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/witan-adp/witan/adp"
)

// Whoever shows a room in other words than its records is told apart; what is left out says nothing, and what is empty is as good as left out.
func TestContradicts(t *testing.T) {
	w := empty(t)
	w.must(creator, Create, contract(obj{"agenda": "a", "guidance": "g", "tags": []string{"x", "y"}, "language": "en", "policy": obj{"max_speakers": 3}, "extra": obj{"n": 1}}))
	var mine map[string]any
	if err := json.Unmarshal(w.s.Resource("https://x.example/v1/rooms/"+w.s.RoomID, w.now), &mine); err != nil {
		t.Fatal(err)
	}
	against := func(name string, value any) []string {
		t.Helper()
		other := map[string]any{}
		for k, v := range mine {
			other[k] = v
		}
		if other[name] = value; value == nil {
			delete(other, name)
		}
		v, err := adp.EncodeValue(other)
		if err != nil {
			t.Fatal(err)
		}
		return w.s.Contradicts(v)
	}
	for _, name := range []string{"creator", "topic", "agenda", "guidance", "visibility", "start_time", "end_time", "tags", "language", "policy", "extra"} {
		for _, value := range []any{"other", 7, []string{"x"}, ""} {
			if got := against(name, value); !slices.Equal(got, []string{name}) {
				t.Errorf("%s is %v: %v", name, value, got)
			}
		}
	}
	for name, value := range map[string]any{"status": "ended", "url": "https://other.example", "types": []any{}, "more": 1, "topic": nil} {
		if got := against(name, value); got != nil {
			t.Errorf("%s is %v: %v", name, value, got)
		}
	}
	w = empty(t)
	w.must(creator, Create, contract(nil))
	if err := json.Unmarshal(w.s.Resource("u", w.now), &mine); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{"agenda": "", "tags": []string{}, "policy": obj{}, "extra": nil} {
		if got := against(name, value); slices.Contains(got, name) {
			t.Errorf("an empty %s contradicts: %v", name, got)
		}
	}
}
