package text

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type fataler interface {
	Helper()
	Fatal(...any)
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string, fresh bool) *Store {
	t.Helper()
	s, was, err := Open(dir, nil)
	must(t, err)
	if was != fresh {
		t.Fatalf("fresh is %v", was)
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func found(t fataler, s *Store, most int, terms ...string) string {
	t.Helper()
	ids, common, err := s.Find(context.Background(), terms, most)
	must(t, err)
	if common {
		return "common"
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// Whatever is put and deleted, a search finds what looking at every document would.
func TestFindIsALook(t *testing.T) {
	s := open(t, t.TempDir(), true)
	words := []string{"a", "b", "c", "long" + strings.Repeat("g", 60), "网", "网络"}
	held := map[string][]string{}
	rapid.Check(t, func(t *rapid.T) {
		var c Change
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			id := fmt.Sprint(rapid.IntRange(0, 200).Draw(t, "id"))
			if slices.ContainsFunc(c.Put, func(d Document) bool { return d.ID == id }) || slices.Contains(c.Delete, id) {
				continue
			}
			if rapid.Bool().Draw(t, "delete") {
				c.Delete = append(c.Delete, id)
				delete(held, id)
				continue
			}
			terms := rapid.SliceOfDistinct(rapid.SampledFrom(words), rapid.ID[string]).Draw(t, "terms")
			c.Put = append(c.Put, Document{id, terms})
			held[id] = terms
		}
		must(t, s.Apply(c))
		if n, err := s.Len(); err != nil || n != int64(len(held)) {
			t.Fatalf("%d documents, %v", n, err)
		}
		asked := rapid.SliceOfNDistinct(rapid.SampledFrom(append(words, "absent")), 1, 3, rapid.ID[string]).Draw(t, "asked")
		var want []string
		for id, terms := range held {
			if !slices.ContainsFunc(asked, func(a string) bool { return !slices.Contains(terms, a) }) {
				want = append(want, id)
			}
		}
		slices.Sort(want)
		if got := found(t, s, 1000, asked...); got != strings.Join(want, " ") {
			t.Fatalf("%v: %s, want %v", asked, got, want)
		}
		all := []string{}
		must(t, s.Each(func(id string) bool { all = append(all, id); return true }))
		slices.Sort(all)
		if diff := cmp.Diff(slices.AppendSeq([]string{}, maps.Keys(held)), all, cmp.Transformer("sort", func(l []string) []string { return slices.Sorted(slices.Values(l)) })); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestCommon(t *testing.T) {
	s := open(t, t.TempDir(), true)
	var c Change
	for i := range 100 {
		c.Put = append(c.Put, Document{fmt.Sprintf("%02d", i), []string{"all", fmt.Sprint("tens", i/10)}})
	}
	must(t, s.Apply(c))
	for terms, want := range map[string]string{"all": "common", "all tens3": "30 31 32 33 34 35 36 37 38 39", "tens3 tens4": "", "": "common", "absent all": ""} {
		if got := found(t, s, 99, strings.Fields(terms)...); got != want {
			t.Errorf("%q: %s", terms, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 2000 {
		c.Put = append(c.Put, Document{fmt.Sprint("more", i), []string{"more"}})
	}
	must(t, s.Apply(c))
	if _, _, err := s.Find(ctx, []string{"more"}, 10000); err == nil {
		t.Error("a search that nobody waits for went on")
	}
	list, err := s.Terms("tens2", "tens4")
	if want := []Frequency{{"tens2", 10}, {"tens3", 10}, {"tens4", 10}}; err != nil || !slices.Equal(list, want) {
		t.Errorf("%v, %v", list, err)
	}
}

func TestStoreKeeps(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "text")
	s := open(t, dir, true)
	must(t, s.Apply(Change{Put: []Document{{"one", []string{"w"}}, {"two", []string{"w"}}}, Notes: map[string]string{"n": "1", "m": "2"}}))
	must(t, s.Apply(Change{Delete: []string{"two", "never"}, Notes: map[string]string{"m": ""}}))
	must(t, s.Close())
	if _, err := s.Note("n"); err == nil {
		t.Error("a closed store answers")
	}
	s = open(t, dir, false)
	n, err := s.Note("n")
	m, err2 := s.Note("m")
	if got := found(t, s, 9, "w"); got != "one" || n != "1" || m != "" || err != nil || err2 != nil {
		t.Fatalf("%q %q %q %v %v", got, n, m, err, err2)
	}
	must(t, s.Reset())
	n, err = s.Note("n")
	if got := found(t, s, 9, "w"); got != "" || n != "" || err != nil {
		t.Errorf("after Reset: %q %q %v", got, n, err)
	}
	must(t, s.Apply(Change{Put: []Document{{"new", []string{"w"}}}}))
	if got := found(t, s, 9, "w"); got != "new" {
		t.Error(got)
	}
}

// A word of a document that was deleted is in no file after Compact.
func TestCompactLeavesNoTrace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "text")
	s := open(t, dir, true)
	for i := range 20 {
		must(t, s.Apply(Change{Put: []Document{{fmt.Sprint("doc", i), []string{"kept", fmt.Sprint("secretword", i)}}}}))
	}
	must(t, s.Apply(Change{Delete: []string{"doc3", "doc4"}}))
	must(t, s.Compact(t.Context()))
	must(t, s.Close())
	s = open(t, dir, false)
	must(t, s.Compact(t.Context()))
	if list, err := s.Terms("secretword3", "secretword4"); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	if got := found(t, s, 99, "secretword5"); got != "doc5" {
		t.Error(got)
	}
}

// That holds, too, when all that is left stands in one file with what was deleted, and again
// after it was written anew.
func TestCompactOfOneFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "text")
	s := open(t, dir, true)
	var c Change
	for i := range 5 {
		c.Put = append(c.Put, Document{fmt.Sprint("doc", i), []string{"kept", fmt.Sprint("secretword", i)}})
	}
	must(t, s.Apply(c))
	must(t, s.Close())
	s = open(t, dir, false)
	for i := range 5 {
		must(t, s.Apply(Change{Delete: []string{fmt.Sprint("doc", i)}}))
		must(t, s.Compact(t.Context()))
		list, err := s.Terms("secretword", "secretwore")
		must(t, err)
		if len(list) != 4-i || len(list) > 0 && list[0].Term != fmt.Sprint("secretword", i+1) {
			t.Errorf("after %d are deleted: %v", i+1, list)
		}
		ids := 0
		must(t, s.Each(func(string) bool { ids++; return true }))
		if n, err := s.Len(); err != nil || n != int64(4-i) || ids != 4-i || len(strings.Fields(found(t, s, 9, "kept"))) != 4-i {
			t.Errorf("after %d are deleted: %d documents, %d IDs, %v", i+1, n, ids, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Compact(ctx); err == nil {
		t.Error("what nobody waited for is told as done")
	}
}

// A store that is damaged, or of another version, is empty and works.
func TestDamagedStore(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"no head": func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "root.bolt"), []byte("no"), 0o600))
		},
		"no segments": func(t *testing.T, dir string) {
			segments, err := filepath.Glob(filepath.Join(dir, "*.zap"))
			must(t, err)
			if len(segments) == 0 {
				t.Fatal("nothing to damage")
			}
			for _, path := range segments {
				must(t, os.Truncate(path, 10))
			}
		},
		"version": func(t *testing.T, dir string) {
			s, _, err := Open(dir, nil)
			must(t, err)
			s.version = "older"
			must(t, s.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "text")
			s := open(t, dir, true)
			must(t, s.Apply(Change{Put: []Document{{"one", []string{"w"}}}}))
			must(t, s.Close())
			damage(t, dir)
			s, _, err := Open(dir, nil) // of two states that bleve wrote, an older one may be whole
			must(t, err)
			defer s.Close()
			if got := found(t, s, 9, "w"); got != "" {
				t.Errorf("it holds %s", got)
			}
			must(t, s.Apply(Change{Put: []Document{{"two", []string{"w"}}}}))
			if got := found(t, s, 9, "w"); got != "two" {
				t.Error(got)
			}
		})
	}
}
