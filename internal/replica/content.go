package replica

import (
	"bytes"
	"context"
	"crypto/sha3"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// ProtocolContent is the stream on which peers ask for a part of what a CID
// addresses:
//
//	request   {"cid":"<cid>","offset":n,"limit":m}    m from 1 to 1 MiB
//	response  the bytes from the offset on, fewer than asked for only at the end
const ProtocolContent = "/witan/cid/1"

// Bounds of that stream, in bytes.
const (
	MaxContentRequest  = 1 << 10
	MaxContentResponse = 1 << 20
)

// ErrContent: what a peer sent is not what the CID addresses.
var ErrContent = errors.New("the bytes are not those of the CID")

// errCut: a record of the content is withheld, so that its bytes are not to be had.
var errCut = adp.Errorf(adp.Withheld, "records of this archive are withheld: it can be read from its room, and not by its CID")

// errUnknownContent does not say whether it is unknown or not public.
var errUnknownContent = errors.New("nothing of that CID is here: archives of public rooms are, once they are made")

// indexContent adds the CIDs of an archive to the batch that stores it.
func (r *Replica) indexContent(b *store.Batch, manifest []byte) error {
	cids, err := r.cids(manifest)
	for _, cid := range cids {
		b.Put(store.Content(cid, r.ID), nil)
	}
	return err
}

// cids are the CIDs by which an archive is found: that of the records also when its host
// names none.
func (r *Replica) cids(manifest []byte) ([]string, error) {
	c, err := adp.ParseClaim(manifest)
	if err != nil {
		return nil, fmt.Errorf("replica %d: the manifest: %w", r.ID, err)
	}
	digest, err := adp.DecodeHash(c.EventsDigest)
	if err != nil {
		return nil, fmt.Errorf("replica %d: events_sha3_256: %w", r.ID, err)
	}
	out := []string{adp.NewCID(adp.CodecJSON, digest)}
	if c.BundleCID != "" {
		out = append(out, c.BundleCID)
	}
	return out, nil
}

// content is what a CID addresses: a beginning, then records, each with one byte
// behind it. The JSON array of records and archive.jsonl are both of this form.
type content struct {
	r       *Replica
	cid     string
	typ     string
	first   []byte
	between byte
	last    byte
	count   int64
	size    int64

	mu     sync.Mutex
	places []int64 // where every placeEvery-th record begins, as far as that is known
}

// placeEvery is how many records may have to be read to find an offset whose
// neighbourhood has been read before.
const placeEvery = 256

// maxContents bounds the contents that are remembered with their places.
const maxContents = 64

// contents remembers those that were asked for last.
type contents struct {
	mu   sync.Mutex
	list []*content // the newest last
}

// content finds what a CID addresses, of a public room; nil when that is nothing,
// and an error with a code when it is cut.
func (s *Set) content(ctx context.Context, cid string) (*content, error) {
	codec, _, err := adp.ParseCID(cid)
	if err != nil {
		return nil, adp.Errorf(adp.InvalidRequest, "%v", err)
	}
	s.contents.mu.Lock()
	defer s.contents.mu.Unlock()
	for i, c := range s.contents.list {
		if c.cid == cid {
			s.contents.list = slices.Delete(s.contents.list, i, i+1)
			if r, ok := s.ByID(c.r.ID); ok && r == c.r && r.whole() && (s.Hidden == nil || !s.Hidden(r)) {
				s.contents.list = append(s.contents.list, c)
				return c, nil
			}
			break // it is forgotten, or cut since
		}
	}
	var ids []uint64
	var cut error
	err = s.st.View(func(rd store.Reader) error {
		var bad error
		from, to := store.ContentRange(cid)
		err := rd.Keys(from, to, func(key []byte) bool {
			var id uint64
			_, id, bad = store.ParseContent(key)
			ids = append(ids, id)
			return bad == nil
		})
		return errors.Join(err, bad)
	})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		r, ok := s.ByID(id)
		if !ok {
			continue
		}
		public := false
		if err := r.View(ctx, func(st *room.State) { public = st.Contract.Visibility == room.Public }); err != nil {
			return nil, err
		}
		if !public {
			continue
		}
		switch row := r.Row(); {
		case s.Hidden != nil && s.Hidden(r), row.Verdict == ArchiveMismatch:
			continue
		case row.Withheld > 0:
			cut = errCut
			continue
		case row.Dropped > 0:
			cut = gone(row)
			continue
		}
		c, err := r.content(cid, codec)
		if err != nil {
			return nil, err
		}
		if s.contents.list = append(s.contents.list, c); len(s.contents.list) > maxContents {
			s.contents.list = s.contents.list[1:]
		}
		return c, nil
	}
	return nil, cut
}

// whole tells whether all that was said is to be had, and the CIDs in the manifest are not
// known to be those of something else.
func (r *Replica) whole() bool {
	row := r.Row()
	return row.Withheld == 0 && row.Dropped == 0 && row.Verdict != ArchiveMismatch
}

func (r *Replica) content(cid string, codec uint64) (*content, error) {
	line1, ok, err := r.set.st.Get(store.Archive(r.ID, partLine1))
	if err != nil {
		return nil, err
	}
	manifest, ok2, err := r.Manifest()
	if err != nil || !ok || !ok2 {
		return nil, errors.Join(err, fmt.Errorf("replica %d: its archive is not whole", r.ID))
	}
	claim, err := adp.ParseClaim(manifest)
	if err != nil {
		return nil, fmt.Errorf("replica %d: the manifest: %w", r.ID, err)
	}
	c := &content{r: r, cid: cid, typ: "application/jsonl; charset=utf-8", first: append(line1, '\n'), between: '\n', last: '\n', count: claim.Count}
	c.size = claim.BundleBytes
	if codec == adp.CodecJSON {
		c.typ, c.first, c.between, c.last = "application/json", []byte{'['}, ',', ']'
		c.size -= int64(len(line1)) // line 1 and its line feed make way for the bracket
	}
	return c, nil
}

// find makes places known up to an offset, and tells the last place before it:
// behind how many records it is, and where.
func (c *content) find(ctx context.Context, offset int64) (after, at int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := func() (after, at int64) {
		i := sort.Search(len(c.places), func(i int) bool { return c.places[i] > offset })
		if i == 0 {
			return 0, int64(len(c.first))
		}
		return int64(i-1) * placeEvery, c.places[i-1]
	}
	n, end := int64(0), int64(len(c.first))
	if k := len(c.places); k > 0 {
		n, end = int64(k-1)*placeEvery, c.places[k-1]
	}
	if end > offset {
		after, at = last()
		return after, at, nil
	}
	err = c.r.Scan(n, c.count, func(seq int64, raw []byte) error {
		if err := ctx.Err(); err != nil { // it may be a long way
			return err
		}
		if IsRedacted(raw) { // its length is not that of the original
			return errCut
		}
		if (seq-1)%placeEvery == 0 && (seq-1)/placeEvery == int64(len(c.places)) {
			c.places = append(c.places, end)
		}
		if end > offset {
			return errStop
		}
		end += int64(len(raw)) + 1
		return nil
	})
	after, at = last()
	return after, at, err
}

// read gives up to limit bytes from an offset on.
func (c *content) read(ctx context.Context, offset int64, limit int) ([]byte, error) {
	if offset >= c.size {
		return nil, nil
	}
	limit = int(min(int64(limit), c.size-offset))
	out := make([]byte, 0, limit)
	take := func(part []byte) {
		if skip := min(offset, int64(len(part))); skip > 0 {
			part, offset = part[skip:], offset-skip
		}
		out = append(out, part[:min(len(part), limit-len(out))]...)
	}
	if offset < int64(len(c.first)) {
		take(c.first)
		offset = 0
	}
	after := int64(0)
	if len(out) == 0 {
		place := int64(0)
		var err error
		if after, place, err = c.find(ctx, offset); err != nil {
			return nil, err
		}
		offset -= place
	}
	err := c.r.Scan(after, c.count, func(seq int64, raw []byte) error {
		if len(out) == limit {
			return errStop
		}
		if IsRedacted(raw) {
			return errCut
		}
		take(raw)
		end := c.between
		if seq == c.count {
			end = c.last
		}
		take([]byte{end})
		return nil
	})
	if err == nil && len(out) != limit {
		err = fmt.Errorf("replica %d: the archive ends %d bytes too early", c.r.ID, limit-len(out))
	}
	return out, err
}

// seeker reads a content as a file, in parts that are large against the way to
// where they begin.
type seeker struct {
	ctx  context.Context // of the request
	c    *content
	at   int64
	part []byte // what follows at, as far as it has been read
}

func (s *seeker) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.c.size
	}
	if offset < 0 {
		return 0, errors.New("a seek before the beginning")
	}
	if offset != s.at {
		s.at, s.part = offset, nil
	}
	return offset, nil
}

func (s *seeker) Read(p []byte) (int, error) {
	if len(s.part) == 0 {
		var err error
		if s.part, err = s.c.read(s.ctx, s.at, MaxContentResponse); err != nil {
			return 0, err
		}
		if len(s.part) == 0 {
			return 0, io.EOF
		}
	}
	n := copy(p, s.part)
	s.at, s.part = s.at+int64(n), s.part[n:]
	return n, nil
}

// ServeCID answers GET /cid/{cid}: by events_cid the JSON array of the records, by
// bundle_cid archive.jsonl, of public rooms whose archive is made. A part can be
// asked for with Range.
func (s *Set) ServeCID(w http.ResponseWriter, req *http.Request) error {
	cid := req.PathValue("cid")
	c, err := s.content(req.Context(), cid)
	if err != nil {
		return err
	}
	if c == nil {
		return adp.Errorf(adp.NotFound, "%v", errUnknownContent)
	}
	h := w.Header()
	h.Set("Content-Type", c.typ)
	h.Set("Cache-Control", web.CacheFinal) // 451 when records are withheld
	h.Set("ETag", `"`+cid+`"`)
	if !web.Ranged(req) {
		req = req.Clone(req.Context())
		req.Header.Del("Range")
	}
	// the length is declared: an answer that a failing disk cuts is seen to be cut
	http.ServeContent(w, req, "", time.Time{}, &seeker{ctx: req.Context(), c: c})
	return nil
}

// ServeContent answers one request on ProtocolContent.
func (s *Set) ServeContent(ctx context.Context, _ string, request []byte) ([]byte, error) {
	bad := errors.New(`the request must be {"cid":"<cid>","offset":<0 …>,"limit":<1 … 1048576>}`)
	if len(request) > MaxContentRequest {
		return nil, bad
	}
	v, err := adp.Scan(request)
	if err != nil || v.Kind() != adp.Object || v.Len() != 3 {
		return nil, bad
	}
	offset, ok := v.Get("offset").Int()
	limit, ok2 := v.Get("limit").Int()
	if !ok || !ok2 || offset < 0 || limit < 1 || limit > MaxContentResponse {
		return nil, bad
	}
	c, err := s.content(ctx, v.Get("cid").Text())
	switch adp.CodeOf(err) {
	case adp.InvalidRequest:
		return nil, bad
	case adp.Withheld:
		return nil, errCut
	case adp.Gone:
		return nil, errUnknownContent
	}
	if err != nil {
		return nil, errors.New("the store cannot be read now; try again later")
	}
	if c == nil {
		return nil, errUnknownContent
	}
	part, err := c.read(ctx, offset, int(limit))
	if errors.Is(err, errCut) {
		return nil, errCut
	}
	if err != nil {
		return nil, errors.New("the store cannot be read now; try again later")
	}
	return part, nil
}

// FetchContent gets what a CID addresses from one peer, part by part, and writes it
// to w, at most max bytes. Only when it returns nil is what was written what the
// CID says; ErrContent means that the peer sent something else.
func FetchContent(ctx context.Context, cid string, max int64, w io.Writer, request func(ctx context.Context, request []byte) ([]byte, error)) error {
	_, digest, err := adp.ParseCID(cid)
	if err != nil {
		return err
	}
	h := sha3.New256()
	for offset := int64(0); ; {
		v, err := adp.EncodeValue(map[string]any{"cid": cid, "offset": offset, "limit": MaxContentResponse})
		if err != nil {
			return err
		}
		part, err := request(ctx, v.Raw())
		if err != nil {
			return fmt.Errorf("fetch %s: %w", cid, err)
		}
		if len(part) > MaxContentResponse {
			return fmt.Errorf("fetch %s: %w: a part of %d bytes", cid, ErrContent, len(part))
		}
		if offset += int64(len(part)); offset > max {
			return fmt.Errorf("fetch %s: more than the %d bytes that are allowed", cid, max)
		}
		h.Write(part)
		if _, err := w.Write(part); err != nil {
			return err
		}
		if len(part) < MaxContentResponse {
			break
		}
	}
	if !bytes.Equal(h.Sum(nil), digest[:]) {
		return fmt.Errorf("fetch %s: %w", cid, ErrContent)
	}
	return nil
}
