package cosign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

const (
	logOrigin   = "log.example/witan"
	witnessName = "w.example/witness"
	start       = 1_800_000_000 // s
)

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func key(seed string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(fmt.Appendf(nil, "%-32.32s", seed))
}

func sameKey(seed string) func() ed25519.PrivateKey {
	return func() ed25519.PrivateKey { return key(seed) }
}

func public(seed string) ed25519.PublicKey { return key(seed).Public().(ed25519.PublicKey) }

func verifier(t testing.TB, name string, kind cosignature.Kind, seed string) *cosignature.Verifier {
	t.Helper()
	return must[*cosignature.Verifier](t)(cosignature.NewVerifier(name, kind, public(seed)))
}

// world is a log that grows, with the story that a seed makes.
type world struct {
	t      testing.TB
	origin string
	key    string
	leaves [][32]byte
}

func newWorld(t testing.TB, story string, n int) *world {
	w := &world{t: t, origin: logOrigin, key: "log"}
	for i := range n {
		w.leaves = append(w.leaves, sha256.Sum256(fmt.Appendf(nil, "%s %d", story, i)))
	}
	return w
}

// split is another log with the same first entries.
func (w *world) split(at int) *world {
	other := *w
	other.leaves = append(append([][32]byte{}, w.leaves[:at]...), newWorld(w.t, "the other story", len(w.leaves)-at).leaves...)
	return &other
}

// noteSigner signs as a log does.
type noteSigner struct {
	v   *cosignature.Verifier
	key ed25519.PrivateKey
}

func (s noteSigner) Name() string                    { return s.v.Name() }
func (s noteSigner) KeyHash() uint32                 { return s.v.KeyHash() }
func (s noteSigner) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

func (w *world) sign(text string, keys ...string) []byte {
	w.t.Helper()
	if keys == nil {
		keys = []string{w.key}
	}
	var signers []note.Signer
	for _, k := range keys {
		signers = append(signers, noteSigner{verifier(w.t, w.origin, cosignature.Log, k), key(k)})
	}
	return must[[]byte](w.t)(note.Sign(&note.Note{Text: text}, signers...))
}

func (w *world) at(size int) cosignature.Checkpoint {
	return cosignature.Checkpoint{Origin: w.origin, Size: uint64(size), Root: adp.MerkleRoot(w.leaves[:size])}
}

func (w *world) proof(from, to int) [][]byte {
	if from == 0 || from == to {
		return nil
	}
	return must[[][]byte](w.t)(adp.ConsistencyProof(w.leaves[:to], uint64(from)))
}

func (w *world) request(from, to int) []byte {
	return cosignature.Request{Old: uint64(from), Proof: w.proof(from, to), Note: w.sign(w.at(to).Text())}.Text()
}

type clock struct{ s atomic.Int64 }

func (c *clock) now() int64 { return c.s.Load() * 1000 }

func memory(t testing.TB) *store.Store {
	t.Helper()
	st := must[*store.Store](t)(store.Open(store.Options{InMemory: true}))
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func options(t testing.TB, st *store.Store) Options {
	c := &clock{}
	c.s.Store(start)
	return Options{Name: witnessName, Key: sameKey("cosigner"), Store: st, Now: c.now,
		Logs: []Log{{logOrigin, verifier(t, logOrigin, cosignature.Log, "log")}}}
}

func newWitness(t testing.TB, o Options) *Witness {
	t.Helper()
	return must[*Witness](t)(New(o))
}

// post sends a request through the routes.
func post(t testing.TB, w *Witness, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	mux := web.NewMux()
	w.Routes(mux)
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("POST", "/witness/add-checkpoint", bytes.NewReader(body)))
	return rec
}

func monitor(t testing.TB, w *Witness, path string) *httptest.ResponseRecorder {
	t.Helper()
	mux := web.NewMux()
	w.Routes(mux)
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("GET", Prefix+path, nil))
	return rec
}

// cosigns wants a signature of the witness over a checkpoint.
func cosigns(t testing.TB, w *Witness, l *world, from, to int) (at int64) {
	t.Helper()
	rec := post(t, w, l.request(from, to))
	if rec.Code != http.StatusOK {
		t.Fatalf("from %d to %d: %d %s", from, to, rec.Code, rec.Body)
	}
	_, sigs, err := cosignature.Open(cosignature.Append(l.at(to).Text(), rec.Body.String()), verifier(t, witnessName, cosignature.Witness, "cosigner"))
	if err != nil || len(sigs) != 1 {
		t.Fatalf("%d signatures, %v: %s", len(sigs), err, rec.Body)
	}
	return must[int64](t)(cosignature.Time(sigs[0]))
}

// refuses wants a status and no signature.
func refuses(t testing.TB, w *Witness, body []byte, code int, size string) {
	t.Helper()
	rec := post(t, w, body)
	if rec.Code != code || strings.Contains(rec.Body.String(), "—") {
		t.Errorf("%d %s, want %d", rec.Code, rec.Body, code)
	}
	if code == http.StatusConflict && (rec.Body.String() != size || rec.Header().Get("Content-Type") != "text/x.tlog.size") {
		t.Errorf("a conflict with %q (%s), want %q", rec.Body, rec.Header().Get("Content-Type"), size)
	}
}

func TestStatuses(t *testing.T) {
	l := newWorld(t, "a", 20)
	w := newWitness(t, options(t, memory(t)))
	refuses(t, w, l.request(3, 5), http.StatusConflict, "0\n") // nothing was cosigned
	if at := cosigns(t, w, l, 0, 5); at != start {
		t.Errorf("signed at %d", at)
	}
	cosigns(t, w, l, 5, 9)
	cosigns(t, w, l, 9, 9) // a fresh time

	refuses(t, w, l.request(0, 12), http.StatusConflict, "9\n")
	refuses(t, w, l.request(5, 12), http.StatusConflict, "9\n")
	refuses(t, w, l.request(5, 9), http.StatusConflict, "9\n") // the answer was lost: the client asks from 9
	refuses(t, w, l.request(10, 12), http.StatusConflict, "9\n")
	refuses(t, w, l.request(5, 7), http.StatusConflict, "9\n")
	above := cosignature.Request{Old: 9, Note: l.sign(l.at(5).Text())}.Text()
	refuses(t, w, above, http.StatusBadRequest, "")

	unknown := newWorld(t, "a", 20)
	unknown.origin = "other.example/witan"
	refuses(t, w, unknown.request(0, 5), http.StatusNotFound, "")
	stranger := newWorld(t, "a", 20)
	stranger.key = "stranger"
	refuses(t, w, stranger.request(9, 12), http.StatusForbidden, "")
	forged := bytes.Replace(l.request(9, 12), []byte("\n12\n"), []byte("\n13\n"), 1)
	refuses(t, w, forged, http.StatusForbidden, "")

	good := cosignature.Request{Old: 9, Proof: l.proof(9, 12), Note: l.sign(l.at(12).Text())}
	for name, proof := range map[string][][]byte{"none": nil, "short": good.Proof[1:], "long": append(l.proof(9, 12), make([]byte, 32)), "of another pair": l.proof(8, 12)} {
		bad := good
		bad.Proof = proof
		t.Log(name)
		refuses(t, w, bad.Text(), http.StatusUnprocessableEntity, "")
	}
	refuses(t, w, l.split(8).request(9, 12), http.StatusUnprocessableEntity, "")
	refuses(t, w, l.split(8).request(9, 9), http.StatusConflict, "9\n") // another root of the size
	bad := cosignature.Request{Old: 9, Proof: [][]byte{make([]byte, 32)}, Note: l.sign(l.at(9).Text())}
	refuses(t, w, bad.Text(), http.StatusUnprocessableEntity, "")

	for _, body := range []string{"", "old 9\n", "x", string(l.request(9, 12)) + "\n", strings.Replace(string(l.request(9, 12)), "old 9", "old 09", 1)} {
		refuses(t, w, []byte(body), http.StatusBadRequest, "")
	}
	refuses(t, w, bytes.Repeat([]byte("x"), cosignature.MaxRequest+1), http.StatusRequestEntityTooLarge, "")
	cosigns(t, w, l, 9, 12)
}

func TestFirstCheckpoint(t *testing.T) {
	l := newWorld(t, "a", 20)
	w := newWitness(t, options(t, memory(t)))
	bad := cosignature.Request{Proof: [][]byte{make([]byte, 32)}, Note: l.sign(l.at(5).Text())}
	refuses(t, w, bad.Text(), http.StatusUnprocessableEntity, "") // a proof at old 0
	c := l.at(0)
	c.Root[3] ^= 1
	refuses(t, w, cosignature.Request{Note: l.sign(c.Text())}.Text(), http.StatusUnprocessableEntity, "")
	cosigns(t, w, l, 0, 0)
	refuses(t, w, cosignature.Request{Note: l.sign(c.Text())}.Text(), http.StatusConflict, "0\n")
	cosigns(t, w, l, 0, 0)
	cosigns(t, w, l, 0, 7)
}

// All sizes, and one flipped bit in every hash.
func TestEveryGrowth(t *testing.T) {
	l := newWorld(t, "a", 17)
	for m := range 17 {
		for n := m; n <= 17; n++ {
			w := newWitness(t, options(t, memoryOnce(t)))
			if m > 0 {
				cosigns(t, w, l, 0, m)
			}
			for i := range l.proof(m, n) {
				r := cosignature.Request{Old: uint64(m), Proof: l.proof(m, n), Note: l.sign(l.at(n).Text())}
				r.Proof[i][i%32] ^= 1 << (i % 8)
				refuses(t, w, r.Text(), http.StatusUnprocessableEntity, "")
			}
			if c := l.at(n); m > 0 && m < n {
				c.Root[n%32] ^= 4
				refuses(t, w, cosignature.Request{Old: uint64(m), Proof: l.proof(m, n), Note: l.sign(c.Text())}.Text(), http.StatusUnprocessableEntity, "")
			}
			cosigns(t, w, l, m, n)
		}
	}
}

// memoryOnce is one store for a whole test, emptied at each call.
func memoryOnce(t testing.TB) *store.Store {
	t.Helper()
	st, ok := shared.Load(t.Name())
	if !ok {
		st = memory(t)
		shared.Store(t.Name(), st)
		t.Cleanup(func() { shared.Delete(t.Name()) }) // it is closed then
	}
	s := st.(*store.Store)
	var b store.Batch
	err := s.View(func(r store.Reader) error {
		from, to := store.CosignedRange()
		return r.Keys(from, to, func(k []byte) bool { b.Delete(bytes.Clone(k)); return true })
	})
	if err == nil {
		err = s.Commit(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var shared sync.Map

func TestMonitoring(t *testing.T) {
	l := newWorld(t, "a", 20)
	st := memory(t)
	w := newWitness(t, options(t, st))
	path := cosignature.MonitorPath(logOrigin)
	if rec := monitor(t, w, path); rec.Code != http.StatusNotFound {
		t.Error(rec.Code)
	}
	cosigns(t, w, l, 0, 5)
	// signatures of strangers are not kept
	stranger := newWorld(t, "a", 20)
	stranger.key = "stranger"
	both := cosignature.Request{Old: 5, Proof: l.proof(5, 8), Note: l.sign(l.at(8).Text(), "log", "stranger")}
	if rec := post(t, w, both.Text()); rec.Code != http.StatusOK {
		t.Fatal(rec.Code, rec.Body)
	}
	for range 2 {
		rec := monitor(t, w, path)
		if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != "text/plain; charset=utf-8" || strings.Count(rec.Body.String(), "—") != 2 {
			t.Fatal(rec.Code, rec.Header(), rec.Body)
		}
		c, sigs, err := cosignature.Open(rec.Body.Bytes(), verifier(t, logOrigin, cosignature.Log, "log"), verifier(t, witnessName, cosignature.Witness, "cosigner"))
		if err != nil || len(sigs) != 2 || c != l.at(8) {
			t.Fatal(c, sigs, err)
		}
		w = newWitness(t, options(t, st)) // a restart
	}
	refuses(t, w, l.request(0, 9), http.StatusConflict, "8\n")
	for _, bad := range []string{"/" + strings.ToUpper(cosignature.OriginHash(logOrigin)) + "/checkpoint", "/00/checkpoint", "/x/checkpoint", cosignature.MonitorPath("x")} {
		if rec := monitor(t, w, bad); rec.Code != http.StatusNotFound {
			t.Error(bad, rec.Code)
		}
	}
}

func TestBoundKeys(t *testing.T) {
	l := newWorld(t, "a", 20)
	l.origin = "rooms.example/witan"
	o := options(t, memory(t))
	var bound []ed25519.PublicKey
	o.Bound = func(line string) []ed25519.PublicKey {
		if line == l.origin {
			return bound
		}
		return nil
	}
	w := newWitness(t, o)
	refuses(t, w, l.request(0, 5), http.StatusNotFound, "")
	bound = []ed25519.PublicKey{public("older"), public("log"), public("log")} // twice is not ambiguous
	cosigns(t, w, l, 0, 5)
	l.key = "older"
	cosigns(t, w, l, 5, 6)
	l.key = "stranger"
	refuses(t, w, l.request(6, 7), http.StatusForbidden, "")
	bound = nil // no longer followed: what was cosigned stays
	l.key = "log"
	refuses(t, w, l.request(6, 7), http.StatusNotFound, "")
	if rec := monitor(t, w, cosignature.MonitorPath(l.origin)); rec.Code != http.StatusOK {
		t.Error(rec.Code)
	}
}

// A signature under the name and ID of a known key that does not hold spoils the
// note, also beside a good one.
func TestOneBadSignature(t *testing.T) {
	l := newWorld(t, "a", 20)
	o := options(t, memory(t))
	o.Logs = append(o.Logs, Log{logOrigin, verifier(t, logOrigin, cosignature.Log, "second")})
	w := newWitness(t, o)
	good := l.sign(l.at(5).Text(), "log")
	other := l.sign(l.at(6).Text(), "second")
	mixed := append(bytes.Clone(good), other[bytes.Index(other, []byte("—")):]...)
	refuses(t, w, cosignature.Request{Note: mixed}.Text(), http.StatusForbidden, "")
	cosigns(t, w, l, 0, 5)
}

func TestContradiction(t *testing.T) {
	l := newWorld(t, "a", 20)
	o := options(t, memory(t))
	var told [][2][]byte
	o.Contradicted = func(line string, held, shown []byte) {
		if line != logOrigin {
			t.Error(line)
		}
		told = append(told, [2][]byte{held, shown})
	}
	w := newWitness(t, o)
	cosigns(t, w, l, 0, 9)
	refuses(t, w, l.split(4).request(9, 12), http.StatusUnprocessableEntity, "") // not yet two of one size
	stranger := l.split(4)
	stranger.key = "stranger"
	refuses(t, w, stranger.request(9, 9), http.StatusForbidden, "") // nobody can frame the log
	if len(told) != 0 {
		t.Fatal(told)
	}
	refuses(t, w, l.split(4).request(0, 9), http.StatusConflict, "9\n")
	refuses(t, w, l.split(4).request(9, 9), http.StatusConflict, "9\n")
	if len(told) != 2 {
		t.Fatal(len(told))
	}
	v := verifier(t, logOrigin, cosignature.Log, "log")
	for _, pair := range told {
		a, _, err := cosignature.Open(pair[0], v)
		b, _, err2 := cosignature.Open(pair[1], v)
		if err != nil || err2 != nil || a.Size != b.Size || a.Root == b.Root {
			t.Error(a, b, err, err2)
		}
	}
	cosigns(t, w, l, 9, 12) // what was cosigned first goes on
}

func TestRefused(t *testing.T) {
	l := newWorld(t, "a", 20)
	o := options(t, memory(t))
	var reason error
	o.MaySign = func() error { return reason }
	w := newWitness(t, o)
	cosigns(t, w, l, 0, 5)
	reason = errors.New("this store is an older copy")
	refuses(t, w, l.request(5, 9), http.StatusServiceUnavailable, "")
	refuses(t, w, l.request(0, 9), http.StatusConflict, "5\n")
	reason = nil
	cosigns(t, w, l, 5, 9)
}

func TestClockGoesBack(t *testing.T) {
	l := newWorld(t, "a", 20)
	o := options(t, memory(t))
	c := &clock{}
	c.s.Store(start + 100)
	o.Now = c.now
	w := newWitness(t, o)
	if at := cosigns(t, w, l, 0, 5); at != start+100 {
		t.Error(at)
	}
	c.s.Store(start)
	if at := cosigns(t, w, l, 5, 6); at != start+100 {
		t.Errorf("a larger tree at the earlier time %d", at)
	}
}

var errDisk = errors.New("the disk failed")

// The commit fails, with and without having happened; the daemon goes on or starts
// again. Nothing that was not surely stored gets out, and no two stories.
func TestCommitFails(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("persisted %v, restart %v", persisted, restart), func(t *testing.T) {
				l := newWorld(t, "a", 20)
				st := memory(t)
				w := newWitness(t, options(t, st))
				cosigns(t, w, l, 0, 5)
				w.put = func(b *store.Batch) error {
					if persisted {
						if err := st.Commit(b); err != nil {
							t.Fatal(err)
						}
					}
					return errDisk
				}
				refuses(t, w, l.request(5, 9), http.StatusInternalServerError, "")
				w.put = st.Commit
				if restart {
					w = newWitness(t, options(t, st))
				}
				if !persisted {
					cosigns(t, w, l.split(6), 5, 9) // no promise was made
					return
				}
				// the promise stands although nobody has heard of it
				refuses(t, w, l.split(6).request(5, 9), http.StatusConflict, "9\n")
				refuses(t, w, l.split(6).request(9, 9), http.StatusConflict, "9\n")
				refuses(t, w, l.request(5, 9), http.StatusConflict, "9\n")
				cosigns(t, w, l, 9, 9)
			})
		}
	}
}

// What cannot be read is not begun again.
func TestDamagedState(t *testing.T) {
	l := newWorld(t, "a", 20)
	for _, damage := range []string{"", "{", "{}", `{"size":1,"root":"AA=="}`} {
		st := memory(t)
		w := newWitness(t, options(t, st))
		cosigns(t, w, l, 0, 5)
		var b store.Batch
		b.Put(store.Cosigned(sha256.Sum256([]byte(logOrigin))), []byte(damage))
		if err := st.Commit(&b); err != nil {
			t.Fatal(err)
		}
		refuses(t, w, l.request(0, 5), http.StatusInternalServerError, "")
		refuses(t, w, l.request(5, 9), http.StatusInternalServerError, "")
		if rec := monitor(t, w, cosignature.MonitorPath(logOrigin)); rec.Code != http.StatusInternalServerError {
			t.Error(rec.Code)
		}
	}
}

// Another request is between the check and the commit.
func TestLostRace(t *testing.T) {
	l := newWorld(t, "a", 20)
	st := memory(t)
	w := newWitness(t, options(t, st))
	cosigns(t, w, l, 0, 5)
	other := newWitness(t, options(t, st))
	w.put = func(b *store.Batch) error {
		cosigns(t, other, l, 5, 12)
		return st.Commit(b)
	}
	refuses(t, w, l.request(5, 9), http.StatusConflict, "12\n")
	w.put = st.Commit
	refuses(t, w, l.split(8).request(5, 9), http.StatusConflict, "12\n")
	cosigns(t, w, l, 12, 13)
}

// Many at once, of two stories: all that is signed is one story.
func TestManyAtOnce(t *testing.T) {
	a := newWorld(t, "a", 64)
	b := a.split(1)
	w := newWitness(t, options(t, memory(t)))
	cosigns(t, w, a, 0, 1)
	type signed struct{ story, size int }
	var mu sync.Mutex
	var all []signed
	var group sync.WaitGroup
	for story, l := range []*world{a, b} {
		for n := 2; n < 34; n++ {
			group.Go(func() {
				_, err := w.Add(l.request(1, n))
				if conflict, ok := errors.AsType[*Conflict](err); ok {
					_, err = w.Add(cosignature.Request{Old: conflict.Size, Proof: proofOf(l, int(conflict.Size), n), Note: l.sign(l.at(n).Text())}.Text())
				}
				if err == nil {
					mu.Lock()
					all = append(all, signed{story, n})
					mu.Unlock()
				}
			})
		}
	}
	group.Wait()
	if len(all) == 0 {
		t.Fatal("nothing was signed")
	}
	for _, s := range all {
		if s.story != all[0].story {
			t.Fatalf("two stories: %v", all)
		}
	}
}

func proofOf(l *world, from, to int) [][]byte {
	if from > to {
		return nil
	}
	return l.proof(from, to)
}
