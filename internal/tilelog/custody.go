package tilelog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
)

// A key must sign the log of one store only. So the store has a random name, and
// beside the key file stands which store it signs for and in which generation of
// the log: one line "witan-store-v1 <name> <generation>", mode 0600. Neither
// tells a secret.
const (
	custodyPrefix = "witan-store-v1 "
	storeName     = "log.store"
	nameLength    = 22 // base64url of 16 bytes
)

// Custody is what stands beside a key file.
type Custody struct {
	Store      string // "" when nothing stands there
	Generation int
}

// CustodyFile is the path of the file that belongs to a key file.
func CustodyFile(keyFile string) string { return keyFile + ".store" }

// ParseCustody reads the content of the file.
func ParseCustody(text []byte) (c Custody, err error) {
	rest, ok := strings.CutPrefix(string(text), custodyPrefix)
	name, gen, ok2 := strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
	if !ok || !ok2 || !strings.HasSuffix(rest, "\n") {
		return c, malformed("not one line %q, the name of a store and a generation", strings.TrimSpace(custodyPrefix))
	}
	id, err := adp.Decode(name)
	if err != nil || len(name) != nameLength || len(id) != 16 {
		return c, malformed("the name of a store is 16 bytes in base64url")
	}
	g, err := number(gen)
	if err != nil || g < 1 || g > 1<<31-1 {
		return c, malformed("a generation is a number from 1 on")
	}
	return Custody{name, int(g)}, nil
}

// Text is the content of the file.
func (c Custody) Text() []byte {
	return []byte(custodyPrefix + c.Store + " " + strconv.Itoa(c.Generation) + "\n")
}

// ReadCustody reads the file of a key file; the zero Custody when there is none.
func ReadCustody(keyFile string) (Custody, error) {
	path := CustodyFile(keyFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Custody{}, nil
	}
	if err != nil {
		return Custody{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return Custody{}, err
	}
	c, err := ParseCustody(text)
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Write puts the file beside a key file: whole under another name first, so that
// a crash leaves the old one or the new one.
func (c Custody) Write(keyFile string) error {
	path := CustodyFile(keyFile)
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".store-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(c.Text())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// StoreName is the name of a store, "" for one that has none.
func StoreName(st *store.Store) (string, error) {
	raw, _, err := st.Get(store.Meta(storeName))
	return string(raw), err
}

// NameStore gives a store a random name, unless it has one.
func NameStore(st *store.Store) (string, error) {
	if name, err := StoreName(st); name != "" || err != nil {
		return name, err
	}
	id := make([]byte, 16)
	rand.Read(id) // never fails
	name := adp.Encode(id)
	var b store.Batch
	b.Expect(store.Meta(storeName), nil)
	b.Put(store.Meta(storeName), []byte(name))
	return name, st.Commit(&b)
}

// Claim compares a key file with a store that holds a log of a size and a
// generation. At the very first start it makes both sides. refusal says, for a
// person, why the key may not sign with this store, "" when it may.
func Claim(keyFile string, st *store.Store, generation int, size uint64) (refusal string, err error) {
	c, err := ReadCustody(keyFile)
	if errors.Is(err, ErrFormat) {
		return err.Error() + "; put the file back from a backup", nil
	}
	if err != nil {
		return "", err
	}
	name, err := StoreName(st)
	if err != nil {
		return "", err
	}
	file := CustodyFile(keyFile)
	switch {
	case c.Store == "" && size == 0 && generation == 1:
		// nothing was signed with this store yet; a crash between the two comes here again
		if name, err = NameStore(st); err != nil {
			return "", err
		}
		return "", Custody{name, generation}.Write(keyFile)
	case c.Store == "":
		return fmt.Sprintf("%s is missing, which says with which store this key signs; put it back", file), nil
	case c.Store != name:
		return fmt.Sprintf("by %s this key signs with another store than the one in use (a new, an empty or somebody else's); put the right store back", file), nil
	case c.Generation != generation:
		return fmt.Sprintf("by %s this key signs generation %d of the log and the store holds generation %d; put the newer of both back", file, c.Generation, generation), nil
	}
	return "", nil
}
