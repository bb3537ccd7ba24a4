package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestArrows(t *testing.T) {
	files, err := load(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d files were found: the walk is wrong", len(files))
	}
	for _, w := range check(files) {
		t.Error(w)
	}
}

// load reads the imports, and the names used of them, of every Go file below root.
func load(root string) ([]sourceFile, error) {
	var files []sourceFile
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// as the go command does
			if base := d.Name(); name != root && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := read(filepath.ToSlash(rel), text)
		files = append(files, f)
		return err
	})
	return files, err
}

// read parses one file.
func read(name string, text []byte) (sourceFile, error) {
	f := sourceFile{path: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go")}
	tree, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return f, err
	}
	names := map[string]string{} // of the imports in this file
	for _, spec := range tree.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return f, err
		}
		f.imports = append(f.imports, p)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." && dialers[p] != nil {
			return f, fmt.Errorf("%s: a dot import hides who dials", f.path)
		}
		names[name] = p
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && names[x.Name] != "" {
				f.uses = append(f.uses, use{names[x.Name], s.Sel.Name})
			}
		}
		return true
	})
	return f, nil
}

// good is a small tree in which every package of the table is there.
func good() []sourceFile {
	var files []sourceFile
	for pkg, allowed := range arrows {
		f := sourceFile{path: path.Join(pkg, "a.go"), pkg: pkg, imports: []string{"fmt"}}
		for _, to := range allowed {
			f.imports = append(f.imports, module+"/"+to)
		}
		files = append(files, f)
	}
	return files
}

// The check itself: each planted mistake is found, and nothing else.
func TestCheckFindsPlantedMistakes(t *testing.T) {
	if wrong := check(good()); wrong != nil {
		t.Fatalf("a good tree was refused: %q", wrong)
	}
	for _, c := range []struct {
		path, text string
		want       string // "" when it is allowed
	}{
		{"host/x.go", `import _ "` + module + `/mirror"`, "host may not import mirror"},
		{"host/x_test.go", `import _ "` + module + `/mirror"`, "host may not import mirror"},
		{"index/x.go", `import _ "` + module + `/internal/store"`, "index may not import internal/store"},
		{"witness/x.go", `import _ "` + module + `/internal/fetch"`, "witness may not import internal/fetch"},
		{"mirror/x.go", `import _ "` + module + `/config"`, "mirror may not import config"},
		{"adp/x.go", `import _ "` + module + `/internal/web"`, "adp may not import internal/web"},
		{"adp/x.go", `import _ "` + module + `/adp/room"`, "adp may not import adp/room"},
		{"adp/room/x.go", `import _ "time"`, "it may not import time"},
		{"adp/room/x_test.go", `import _ "time"`, ""},
		{"internal/store/x.go", `import _ "` + module + `/adp"`, "internal/store may not import adp"},
		{"internal/web/x.go", `import _ "` + module + `/internal/store"`, "internal/web may not import internal/store"},
		{"x.go", `import _ "` + module + `/daemon"`, ". may not import daemon"},
		{"daemon/x.go", `import _ "` + module + `"`, "daemon may not import ."},
		{"internal/helpers/x.go", ``, "package internal/helpers has no row"},
		{"internal/replica/x.go", `import _ "github.com/dgraph-io/badger/v4"`, "only internal/store may import github.com/dgraph-io/badger/v4"},
		{"internal/replica/x_test.go", `import _ "github.com/dgraph-io/badger/v4/options"`, "only internal/store may import"},
		{"internal/store/x.go", `import _ "github.com/dgraph-io/badger/v4"`, ""},
		{"witness/x_test.go", `import _ "github.com/libp2p/go-libp2p/core/peer"`, "only internal/p2p may import"},
		{"internal/p2p/x_test.go", `import _ "github.com/libp2p/go-libp2p-pubsub"`, ""},
		{"internal/store/x.go", `import _ "` + module + `/internal/store/storetest"`, "internal/store may not import internal/store/storetest"},
		{"internal/store/x_test.go", `import _ "` + module + `/internal/store/storetest"`, ""},
		{"mirror/x.go", `import h "net/http"; var c h.Client`, "net/http.Client opens connections"},
		{"mirror/x.go", `import "net/http"; var c = http.DefaultClient`, "net/http.DefaultClient opens connections"},
		{"mirror/x.go", `import "net/http"; func f() { http.Get("http://10.0.0.1") }`, "net/http.Get opens connections"},
		{"mirror/x.go", `import "net"; var d net.Dialer`, "net.Dialer opens connections"},
		{"mirror/x.go", `import "net/http"; var r *http.Request`, ""},
		{"mirror/x_test.go", `import "net/http"; var c http.Client`, ""},
		{"internal/fetch/x.go", `import "net/http"; var c http.Client`, ""},
		{"internal/cli/x.go", `import "net/http"; var c http.Client`, "net/http.Client opens connections"},
		{"internal/cli/operator.go", `import "net/http"; var c http.Client`, ""},
	} {
		f, err := read(c.path, []byte("package x\n"+c.text))
		if err != nil {
			t.Errorf("%s %s: %v", c.path, c.text, err)
			continue
		}
		wrong := check(append(good(), f))
		switch {
		case c.want == "" && wrong != nil:
			t.Errorf("%s %s: refused: %q", c.path, c.text, wrong)
		case c.want != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], c.want)):
			t.Errorf("%s %s: got %q, want one line with %q", c.path, c.text, wrong, c.want)
		}
	}
	absent := slices.DeleteFunc(good(), func(f sourceFile) bool { return f.pkg == "witness" })
	if wrong := check(absent); len(wrong) != 1 || !strings.Contains(wrong[0], "row for witness") {
		t.Errorf("a row without a package: got %q", wrong)
	}
	if _, err := read("mirror/x.go", []byte("package x\nimport . \"net\"")); err == nil {
		t.Error("a dot import of net was taken")
	}
}
