package feed

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"github.com/witan-adp/witan/index"
)

// FuzzFormats: whatever a room is called, each feed is well-formed, and a renderer of
// Markdown finds no more in it than in that of a harmless room.
func FuzzFormats(f *testing.F) {
	for _, s := range []string{"plain", hostile, "- x\n+ y\n* z", "| a | b |\n|---|---|", "[x]: http://a.example", "~~~\nx\n~~~", "\\", "a\\\nb", "![i](x)", "<a@b.example>", "&#x41;&copy;", "Title\n===", "1) x", "$x$", "[^1]", ":smile:", "\xff\xfe", "\t code", "- [ ] task"} {
		f.Add(s)
	}
	md := goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote, extension.DefinitionList, extension.Typographer))
	shape := func(t *testing.T, name string) (kinds map[ast.NodeKind]int) {
		l := &list{origin: own, self: own + "/feed.md", id: own + "/feed.md", title: "T", rooms: []index.Room{{URL: other + "/v1/rooms/a", Origin: other, RoomID: "a", Genesis: "g", Topic: name,
			Agenda: name, Tags: []string{name}, Language: name, Creator: "did:agent:x", Status: "active", Verdict: "verified", Attested: "unattested"}}}
		raw, err := renderMarkdown(l)
		if err != nil {
			t.Fatal(err)
		}
		kinds = map[ast.NodeKind]int{}
		err = ast.Walk(md.Parser().Parse(text.NewReader(raw)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			if entering && n.Kind() != ast.KindText && n.Kind() != ast.KindString && n.Kind() != ast.KindParagraph {
				kinds[n.Kind()]++
			}
			return ast.WalkContinue, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, as := range []func(*list) ([]byte, error){renderAtom, renderJSON} {
			raw, err := as(l)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.HasPrefix(raw, []byte("<?xml")) {
				var back atomFeed
				if err := xml.Unmarshal(raw, &back); err != nil || len(back.Entries) != 1 || back.Entries[0].ID != l.rooms[0].URL {
					t.Errorf("%v: %q", err, raw)
				}
			} else if !json.Valid(raw) || !utf8.Valid(raw) {
				t.Errorf("no JSON: %q", raw)
			}
		}
		return kinds
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, got := shape(t, "harmless"), shape(t, s)
		if strings.TrimSpace(s) == "" { // nothing is quoted
			return
		}
		for kind, n := range got {
			if n != want[kind] {
				t.Errorf("%q makes %d of %v, a harmless room %d", s, n, kind, want[kind])
			}
		}
	})
}
