package archtest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docs/architecture.md has a line for every package, and for none that is gone.
func TestPackagesAreDocumented(t *testing.T) {
	told := map[string]bool{}
	for line := range strings.SplitSeq(document(t, "docs/architecture.md"), "\n") {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			for i, name := range strings.Split(rest, "`") {
				if _, known := arrows[name]; i == 0 || known {
					told[name] = true
				}
			}
		}
	}
	delete(told, "main.go")
	for _, pkg := range slices.Sorted(maps.Keys(arrows)) {
		if pkg != "." && !told[pkg] && !forTests(pkg) {
			t.Errorf("docs/architecture.md says nothing of %s", pkg)
		}
	}
	for pkg := range told {
		if _, known := arrows[pkg]; !known {
			t.Errorf("docs/architecture.md tells of %s, which is not there", pkg)
		}
	}
}

// docs/dependencies.md names every direct module with its version, and none besides.
func TestDependenciesAreDocumented(t *testing.T) {
	mod, err := modfile.Parse("go.mod", []byte(document(t, "go.mod")), nil)
	if err != nil {
		t.Fatal(err)
	}
	text := document(t, "docs/dependencies.md")
	direct := map[string]bool{}
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		direct[r.Mod.Path] = true
		version, _, _ := strings.Cut(strings.TrimPrefix(r.Mod.Version, "v0.0.0-"), "-") // of a commit, its time
		if len(version) == 14 {
			version = "v0.0.0-" + version[:8]
		}
		found := false
		for line := range strings.SplitSeq(strings.ReplaceAll(text, "\nv", " v"), "\n") {
			found = found || strings.Contains(line, r.Mod.Path) && strings.Contains(line, version)
		}
		if !found {
			t.Errorf("docs/dependencies.md says nothing of %s %s", r.Mod.Path, r.Mod.Version)
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "/") {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			if name = strings.TrimSpace(name); !direct[name] {
				t.Errorf("docs/dependencies.md tells of %s, which go.mod does not require directly", name)
			}
		}
	}
}
