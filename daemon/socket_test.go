package daemon

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A data folder with a long path has its socket elsewhere, in a folder that nobody else
// can have made, and nothing of it is left behind.
func TestAdminSocketOfALongPath(t *testing.T) {
	data := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	link := filepath.Join(data, socketName)
	alive := func(d *running) string {
		t.Helper()
		if status, body := d.operate("GET", "/keys", nil, nil); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		path, err := AdminSocket(data)
		if err != nil || len(path) > maxSocket || filepath.Dir(path) == data {
			t.Fatalf("%s, %v", path, err)
		}
		return path
	}
	gone := func(path string) {
		t.Helper()
		for _, p := range []string{path, filepath.Dir(path)} {
			if _, err := os.Lstat(p); !os.IsNotExist(err) {
				t.Errorf("%s is left behind: %v", p, err)
			}
		}
	}
	d := start(t, setup{data: data})
	path, port := alive(d), d.port()
	for p, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", p, info, err)
		}
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	gone(path)
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("the link is left behind: %v", err)
	}
	if _, err := AdminSocket(data); !os.IsNotExist(err) {
		t.Errorf("of a daemon that is stopped: %v", err)
	}

	// what a process leaves behind that is killed goes at the next start
	left, err := os.MkdirTemp("", socketFolder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(left) })
	for _, err := range []error{os.WriteFile(filepath.Join(left, socketName), nil, 0o600), os.Symlink(filepath.Join(left, socketName), link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d = start(t, setup{data: data, port: port})
	path = alive(d)
	gone(filepath.Join(left, socketName))

	// a folder that others can write to may be one that others made
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if found, err := AdminSocket(data); err == nil || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("%s, %v", found, err)
	}
}

// A link that leads elsewhere than to a folder made for a socket costs no file there.
func TestRemoveSocket(t *testing.T) {
	for _, name := range []string{"elsewhere/" + socketName, socketFolder + "1/other.sock"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		removeSocket(path)
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
