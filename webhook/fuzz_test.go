package webhook

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/witan-adp/witan/adp"
)

// FuzzRegistration: what is taken is within its bounds, means the same when it is sent
// again as it was understood, and all else is refused with a code.
func FuzzRegistration(f *testing.F) {
	f.Add([]byte(`{"url":"https://a.example/x?y=z","events":["mention"],"filters":{"hosts":["https://B.example:443"],"tags":["a"],"languages":["en"],"q":"x y","agents":[]}}`))
	f.Add([]byte(`{"url":"http://127.0.0.1:1","events":["host.state","room.forked"]}`))
	f.Add([]byte(`{"URL":"https://a.example","events":["mention"]}`))
	f.Add([]byte(`{"url":null,"events":null,"filters":null}`))
	f.Add([]byte(`[]`))
	w := newWorld(f, nil).w
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := decode(body)
		if err == nil {
			r, err = w.check("", r)
		}
		if err != nil {
			if adp.CodeOf(err) != adp.InvalidRequest {
				t.Errorf("%v", err)
			}
			return
		}
		if len(r.URL) > 3*maxURL || len(r.Events) == 0 || len(r.Events) > len(Events) || len(r.Filters.Tags) > maxList || len(r.Filters.Q) > maxEntry {
			t.Errorf("%+v", r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(again)
		if err == nil {
			back, err = w.check("", back)
		}
		var want Registration // empty lists and none are the same
		if err2 := json.Unmarshal(again, &want); err != nil || err2 != nil || !reflect.DeepEqual(back, want) {
			t.Errorf("%s was understood as %+v, and that as %+v: %v", body, r, back, err)
		}
	})
}
