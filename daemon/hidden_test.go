package daemon

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"maps"
)

// A room in quarantine is listed with what it is called and why it is not shown, and
// with nothing that was said in it, however it is looked for; after the release it is
// as before. A restricted room, of which only metadata is held, is not listed at all.
func TestQuarantineInTheIndex(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}})
	creator := newAgent(t)
	id := a.create(creator, obj{"topic": "A quorum of owls", "tags": []string{"birds"}})
	a.create(creator, obj{"topic": "A closed circle of owls", "visibility": "restricted"})
	search := func(query string) (found []obj) {
		if status, _, raw := b.call("GET", "/v1/index/rooms?host="+url.QueryEscape(a.origin)+query, nil, &found); status != http.StatusOK {
			t.Fatalf("%s: %d %s", query, status, raw)
		}
		return found
	}
	until(t, "the mirror to list both", func() bool { return len(search("&q=owls")) == 2 })
	for _, name := range []string{a.origin, a.origin + "/v1/rooms/" + id} {
		b.command("/mirror/quarantine", obj{"origin": name, "reason": "a complaint"})
		found := search("&verdict=verified")
		if len(found) != 1 {
			t.Fatalf("%v", found)
		}
		want := []string{"attested", "hidden", "origin", "reason", "room_id", "state", "url", "verdict"}
		if got := slices.Sorted(maps.Keys(found[0])); !slices.Equal(got, want) || found[0]["state"] != "quarantined" || !strings.Contains(found[0]["reason"].(string), "a complaint") {
			t.Errorf("%v", found[0])
		}
		for _, query := range []string{"&q=quorum", "&keyword=owls+x", "&tag=birds", "&status=active", "&joinable=true", "&language=en"} {
			if found := search(query + "&visibility=public"); len(found) != 0 {
				t.Errorf("%s: %v", query, found)
			}
		}
		if name == a.origin {
			if found := search(""); len(found) != 1 {
				t.Errorf("the metadata of a restricted room: %v", found)
			}
		}
		b.command("/mirror/release", obj{"origin": name})
		b.command("/mirror/retry", obj{"origin": a.origin})
		until(t, "the mirror to list both again", func() bool { return len(search("&q=owls")) == 2 && len(search("&tag=birds")) == 1 })
	}
}
