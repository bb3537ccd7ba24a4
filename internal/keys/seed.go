package keys

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/witan-adp/witan/adp"
)

// A seed file is one line of text, so that it survives a copy through a terminal and names its own format.
const (
	seedPrefix = "witan-seed-v1 "
	seedLength = len(seedPrefix) + adp.HashLen + 1
)

// Load reads the seed file at path and returns its keys in the first generation. When there is no file it makes a random seed and
// answers created = true; of several that do so at once, all return the one seed that stands in the file.
//
// It refuses a file that others may read, one that is not a regular file, and one of any other form.
func Load(path string) (ring *Ring, created bool, err error) {
	seed, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		if created, err = create(path); err != nil {
			return nil, false, fmt.Errorf("create seed file %s: %w", path, err)
		}
		seed, err = read(path)
	}
	if err != nil {
		return nil, false, fmt.Errorf("seed file %s: %w", path, err)
	}
	return FromSeed(seed, FirstGeneration), created, nil
}

func read(path string) (seed [32]byte, err error) {
	info, err := os.Stat(path) // before opening: to open a pipe would wait for its writer
	if err != nil {
		return seed, err
	}
	if !info.Mode().IsRegular() {
		return seed, errors.New("is not a regular file; name a file")
	}
	f, err := os.Open(path)
	if err != nil {
		return seed, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil { // of the file that is open, whatever stands at path by now
		return seed, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return seed, fmt.Errorf("others may use it (mode %04o); run: chmod 600 %s", mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(seedLength)+1))
	if err != nil {
		return seed, err
	}
	rest, ok := strings.CutPrefix(string(text), seedPrefix)
	if !ok || len(text) != seedLength || text[seedLength-1] != '\n' {
		return seed, fmt.Errorf("is not one line %q, 43 base64url characters and a line feed; restore it from a backup, "+
			"or move it away to start with new keys", strings.TrimSpace(seedPrefix))
	}
	if seed, err = adp.DecodeHash(rest[:adp.HashLen]); err != nil { // the error holds none of the text
		return seed, errors.New("its seed is not canonical base64url of 32 bytes; restore it from a backup")
	}
	return seed, nil
}

// create puts a new seed at path if nothing is there yet. The whole text is on the disk under another name before it gets its
// own, so that neither a second creator nor a crash ever meets half a file.
func create(path string) (created bool, err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	var seed [32]byte
	rand.Read(seed[:]) // never fails
	f, err := os.CreateTemp(dir, ".seed-*")
	if err != nil {
		return false, err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(seedPrefix + adp.Encode(seed[:]) + "\n")
	err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close())
	if err != nil {
		return false, err
	}
	switch err := os.Link(f.Name(), path); {
	case errors.Is(err, fs.ErrExist): // another creator was first
		return false, nil
	case err != nil:
		return false, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return true, err
	}
	return true, errors.Join(d.Sync(), d.Close())
}
