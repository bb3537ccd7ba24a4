package text

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/document"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/index/scorch/mergeplan"
	bleve "github.com/blevesearch/bleve_index_api"
)

// version says how terms are made and IDs are written. A store of another one is
// dropped.
const version = "witan text 1"

// Document is what is kept of a text.
type Document struct {
	ID    string // not empty
	Terms []string
}

// Store is safe for concurrent use; changes are made one after the other.
type Store struct {
	dir     string
	version string
	log     *slog.Logger

	mu      sync.RWMutex // held while index is used
	index   *scorch.Scorch
	queue   *bleve.AnalysisQueue
	writing sync.Mutex

	compacting sync.Mutex // taken before mu
}

// ErrClosed: the store was closed.
var ErrClosed = errors.New("the text index is closed")

const versionKey = "version"

// Open opens the store in a folder of its own. One that cannot be read, or is of
// another version, is deleted, which is logged; fresh tells that the store is empty.
func Open(dir string, log *slog.Logger) (s *Store, fresh bool, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s = &Store{dir: dir, version: version, log: log, queue: bleve.NewAnalysisQueue(1)}
	if _, statErr := os.Stat(filepath.Join(dir, "root.bolt")); statErr == nil {
		if err = s.open(); err == nil {
			return s, false, nil
		}
		log.Warn("the text index cannot be used and is built again", "folder", dir, "error", err)
	}
	if err := s.start(); err != nil {
		s.queue.Close()
		return nil, false, err
	}
	return s, true, nil
}

// start makes the folder anew.
func (s *Store) start() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("drop the text index: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("the text index: %w", err)
	}
	if err := s.load(); err != nil {
		return err
	}
	if err := s.index.SetInternal([]byte(versionKey), []byte(version)); err != nil {
		return errors.Join(fmt.Errorf("the text index: %w", err), s.index.Close())
	}
	return nil
}

// open reads what is there, and all that a query may touch first.
func (s *Store) open() (err error) {
	if err := s.load(); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil { // of a decoder that met bytes that nobody wrote
			err = fmt.Errorf("%v", r)
		}
		if err != nil {
			err = errors.Join(err, s.index.Close())
		}
	}()
	r, err := s.index.Reader()
	if err != nil {
		return err
	}
	defer r.Close()
	v, err := r.GetInternal([]byte(versionKey))
	if err != nil {
		return err
	}
	if string(v) != version {
		return fmt.Errorf("it is of version %q, and this program writes %q", v, version)
	}
	return eachID(r, func(string) bool { return true })
}

func (s *Store) load() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the text index: %v", r)
		}
	}()
	// A change is answered before it is on the disk: what a crash loses, the next start
	// finds missing.
	s.tellErrors()
	made, err := scorch.NewScorch("scorch", map[string]any{"path": s.dir, "unsafe_batch": true, "bolt_timeout": "5s", "numSnapshotsToKeep": 1,
		"asyncErrorCallbackName": asyncErrors}, s.queue)
	if err != nil {
		return fmt.Errorf("the text index: %w", err)
	}
	if err := made.Open(); err != nil {
		return fmt.Errorf("the text index: %w", err)
	}
	s.index = made.(*scorch.Scorch)
	return nil
}

// What happens in the background is told by folder, since bleve knows only one name for
// all stores of a process.
const asyncErrors = "witan"

var (
	logs     sync.Map // folder → *slog.Logger
	register = sync.OnceFunc(func() {
		scorch.RegistryAsyncErrorCallbacks[asyncErrors] = func(err error, dir string) {
			if log, ok := logs.Load(dir); ok {
				log.(*slog.Logger).Error("the text index cannot write; searches for words miss what is new until it is built again", "folder", dir, "error", err)
			}
		}
	})
)

func (s *Store) tellErrors() {
	register()
	logs.Store(s.dir, s.log)
}

// Close ends all use of the store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index == nil {
		return nil
	}
	err := errors.Join(s.settle(context.Background()), s.index.Close())
	s.index = nil
	s.queue.Close()
	return err
}

// settleTime bounds the wait for the disk.
const settleTime = 30 * time.Second

// settle waits until all changes so far are on the disk.
func (s *Store) settle(ctx context.Context) error {
	written := make(chan error, 1)
	b := bleve.NewBatch()
	b.SetInternal([]byte(versionKey), []byte(s.version)) // a batch of nothing is never written
	b.SetPersistedCallback(func(err error) { written <- err })
	if err := s.batch(b); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the text index was not written in time: %w", ctx.Err())
	}
}

// Reset drops everything.
func (s *Store) Reset() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index == nil {
		return ErrClosed
	}
	if err := s.index.Close(); err != nil {
		s.log.Warn("the text index did not close well before it was dropped", "error", err)
	}
	if err := s.start(); err != nil {
		s.index = nil
		return err
	}
	return nil
}

// Change is a number of documents to put and to delete, and of notes to set ("" deletes
// one), which are made together.
type Change struct {
	Put    []Document
	Delete []string // IDs
	Notes  map[string]string
}

// Apply makes a change. It is seen by every Find that starts afterwards.
func (s *Store) Apply(c Change) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.index == nil {
		return ErrClosed
	}
	b := bleve.NewBatch()
	for _, id := range c.Delete {
		b.Delete(id)
	}
	for _, d := range c.Put {
		doc := document.NewDocument(d.ID)
		doc.AddField(document.NewTextFieldCustom(field, nil, nil, bleve.IndexField|bleve.SkipFreqNorm, terms(d.Terms)))
		b.Update(doc)
	}
	for name, value := range c.Notes {
		if value == "" {
			b.DeleteInternal([]byte("n" + name))
		} else {
			b.SetInternal([]byte("n"+name), []byte(value))
		}
	}
	return s.batch(b)
}

const field = "t"

// terms is an analyzer for a text that was analyzed already.
type terms []string

func (t terms) Analyze([]byte) analysis.TokenStream {
	tokens := make([]analysis.Token, len(t))
	out := make(analysis.TokenStream, len(t))
	for i, term := range t {
		tokens[i] = analysis.Token{Term: []byte(term), Position: i + 1}
		out[i] = &tokens[i]
	}
	return out
}

func (s *Store) read(fn func(bleve.IndexReader) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.index == nil {
		return ErrClosed
	}
	r, err := s.index.Reader()
	if err != nil {
		return fmt.Errorf("the text index: %w", err)
	}
	if err := errors.Join(fn(r), r.Close()); err != nil {
		return fmt.Errorf("the text index: %w", err)
	}
	return nil
}

// Note is what Apply set under a name, "" when there is nothing.
func (s *Store) Note(name string) (value string, err error) {
	err = s.read(func(r bleve.IndexReader) error {
		raw, err := r.GetInternal([]byte("n" + name))
		value = string(raw)
		return err
	})
	return value, err
}

// Each gives the IDs of all documents, in no order, until fn says false.
func (s *Store) Each(fn func(id string) bool) error {
	return s.read(func(r bleve.IndexReader) error { return eachID(r, fn) })
}

// filler is a document of no text, which nobody put and nobody is told of, see Compact.
const filler = "\x00filler"

func eachID(r bleve.IndexReader, fn func(id string) bool) error {
	all, err := r.DocIDReaderAll()
	if err != nil {
		return err
	}
	defer all.Close()
	for {
		internal, err := all.Next()
		if err != nil || internal == nil {
			return err
		}
		id, err := r.ExternalID(internal)
		if err != nil {
			return err
		}
		if id != filler && !fn(id) {
			return nil
		}
	}
}

// Len is the number of documents.
func (s *Store) Len() (n int64, err error) {
	err = s.read(func(r bleve.IndexReader) error {
		count, err := r.DocCount()
		if err != nil {
			return err
		}
		n = int64(count)
		id, err := r.InternalID(filler)
		if id != nil {
			n--
		}
		return err
	})
	return n, err
}

// checkEvery is after how many documents a search looks whether it is still wanted.
const checkEvery = 1024

// Find gives the IDs of the documents that have all the terms, in no order. It looks at
// no more documents than the rarest term has: when those are more than most, ids is nil
// and common is true.
func (s *Store) Find(ctx context.Context, all []string, most int) (ids []string, common bool, err error) {
	err = s.read(func(r bleve.IndexReader) error {
		ids, common, err = find(ctx, r, all, most)
		return err
	})
	return ids, common, err
}

func find(ctx context.Context, r bleve.IndexReader, all []string, most int) (ids []string, common bool, err error) {
	var readers []bleve.TermFieldReader
	defer func() {
		for _, t := range readers {
			err = errors.Join(err, t.Close())
		}
	}()
	for _, term := range all {
		t, err := r.TermFieldReader(ctx, []byte(term), field, false, false, false)
		if err != nil {
			return nil, false, err
		}
		readers = append(readers, t)
		if t.Count() == 0 {
			return nil, false, nil
		}
	}
	if len(readers) == 0 {
		return nil, true, nil
	}
	slices.SortFunc(readers, func(a, b bleve.TermFieldReader) int { return cmp.Compare(a.Count(), b.Count()) })
	if readers[0].Count() > uint64(most) {
		return nil, true, nil
	}
	at := make([]*bleve.TermFieldDoc, len(readers)) // where each of the others stands
	done := make([]bool, len(readers))
	var doc bleve.TermFieldDoc
	for n := 1; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		rarest, err := readers[0].Next(doc.Reset())
		if err != nil || rarest == nil {
			return ids, false, err
		}
		in := true
		for i := 1; i < len(readers) && in; i++ {
			if !done[i] && (at[i] == nil || at[i].ID.Value() < rarest.ID.Value()) {
				if at[i], err = readers[i].Advance(rarest.ID, nil); err != nil {
					return nil, false, err
				}
				done[i] = at[i] == nil
			}
			in = !done[i] && at[i].ID.Value() == rarest.ID.Value()
		}
		if !in {
			continue
		}
		id, err := r.ExternalID(rarest.ID)
		if err != nil {
			return nil, false, err
		}
		ids = append(ids, id)
	}
}

// Frequency is a term and how many documents have it.
type Frequency struct {
	Term  string
	Count int64
}

// Terms lists the terms from one to another, both included, in order. A term of which
// all documents were deleted may still be listed, with a count of any size.
func (s *Store) Terms(from, to string) (list []Frequency, err error) {
	err = s.read(func(r bleve.IndexReader) error {
		dict, err := r.FieldDictRange(field, []byte(from), []byte(to))
		if err != nil {
			return err
		}
		for {
			entry, err := dict.Next()
			if err != nil || entry == nil {
				return errors.Join(err, dict.Close())
			}
			list = append(list, Frequency{entry.Term, int64(entry.Count)})
		}
	})
	return list, err
}

// Compact writes the store anew without what was deleted before, so that no trace of it stays
// in the files.
func (s *Store) Compact(ctx context.Context) error {
	s.compacting.Lock() // bleve refuses a second one at once
	defer s.compacting.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.index == nil {
		return ErrClosed
	}
	// bleve leaves a file as it is that is the only one, whatever was deleted of it: this makes another.
	b := bleve.NewBatch()
	b.Update(document.NewDocument(filler))
	if err := s.batch(b); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	plan := mergeplan.SingleSegmentMergePlanOptions
	err := s.index.ForceMerge(ctx, &plan)
	if err == nil {
		err = ctx.Err() // bleve does not tell that it gave up
	}
	if err != nil {
		return fmt.Errorf("compact the text index: %w", err)
	}
	return nil
}

// batch makes changes, one after the other. It needs mu, for reading.
func (s *Store) batch(b *bleve.Batch) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.index.Batch(b); err != nil {
		return fmt.Errorf("the text index: %w", err)
	}
	return nil
}
