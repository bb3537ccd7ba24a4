package storetest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// FilesWith lists the files in the folder of a store that hold some bytes.
func FilesWith(t *testing.T, dir, what string) (names []string) {
	t.Helper()
	for {
		names, err := filesWith(dir, what)
		if err == nil {
			return names
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		// The engine took a file away, and what stood in it may be in one that was not listed.
	}
}

func filesWith(dir, what string) (names []string, err error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		raw, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		if bytes.Contains(raw, []byte(what)) {
			names = append(names, f.Name())
		}
	}
	return names, nil
}
