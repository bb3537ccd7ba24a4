package inspect

import (
	"bufio"
	"bytes"
	"crypto/sha3"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/witan-adp/witan/adp"
)

// Bounds of one line of an archive, in bytes. A host bounds a request body near 512 KiB, and so a record.
const (
	MaxRecordText   = 4 << 20
	MaxManifestText = 16 << 20
)

// badInput is text that cannot be an archive: a finding about the input, and no failure of ours.
type badInput struct{ error }

func badf(format string, args ...any) error { return badInput{fmt.Errorf(format, args...)} }

// exact hashes bytes as they come, so that they can be compared with the CID of a bundle.
type exact struct {
	r io.Reader
	h hash.Hash
	n int64
}

func newExact(r io.Reader) *exact { return &exact{r: r, h: sha3.New256()} }

func (e *exact) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.h.Write(p[:n])
	e.n += int64(n)
	return n, err
}

// cid is the CID of the bytes so far.
func (e *exact) cid() string {
	var sum [32]byte
	e.h.Sum(sum[:0])
	return adp.NewCID(adp.CodecRaw, sum)
}

// source is an archive as a stream of texts.
type source struct {
	line1 []byte                 // the manifest that stands before the records, or nil
	next  func() ([]byte, error) // the text of the next record; io.EOF at the end
}

// openSource tells the forms of an archive apart: archive.jsonl (a manifest, then a record a line), records alone a line each, and a JSON
// array of records.
func openSource(r io.Reader) (*source, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	first, err := peekText(br)
	if err == io.EOF {
		return nil, badf("it is empty")
	}
	if err != nil {
		return nil, err
	}
	if first == '[' {
		return arraySource(br), nil
	}
	lines := &lineReader{r: br}
	text, err := lines.next(MaxManifestText)
	if err != nil {
		return nil, err
	}
	v, err := adp.ScanDepth(text, adp.RecordDepth+24)
	if err != nil {
		return nil, badf("line 1 is %w; an archive begins with its manifest or with its first record, each on one line", err)
	}
	if v.Get("type").Exists() {
		return &source{line1: text, next: func() ([]byte, error) { return lines.next(MaxRecordText) }}, nil
	}
	return &source{next: func() ([]byte, error) {
		if t := text; t != nil {
			text = nil
			return t, nil
		}
		return lines.next(MaxRecordText)
	}}, nil
}

// peekText is the first byte that is no white space, left unread.
func peekText(br *bufio.Reader) (byte, error) {
	for n := 1; ; n++ {
		b, err := br.Peek(n)
		if len(b) < n {
			if err == bufio.ErrBufferFull {
				return 0, badf("it begins with white space only")
			}
			return 0, err
		}
		if c := b[n-1]; c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, nil
		}
	}
}

// lineReader reads lines of bounded length.
type lineReader struct {
	r *bufio.Reader
	n int
}

// next is the next line without its line end, in memory of its own. The last line may lack a line end.
func (l *lineReader) next(limit int) ([]byte, error) {
	var line []byte
	l.n++
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit+1:
			return nil, badf("line %d is longer than %d bytes", l.n, limit)
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(line) == 0:
			return nil, io.EOF
		case err != nil && err != io.EOF:
			return nil, err
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(bytes.TrimSpace(line)) == 0 {
			return nil, badf("line %d is empty", l.n)
		}
		return line, nil
	}
}

// arraySource reads the elements of one JSON array, each of bounded length.
func arraySource(r io.Reader) *source {
	bounded := &boundedReader{r: r, left: 2 * MaxRecordText}
	d := json.NewDecoder(bounded)
	opened := false
	next := func() ([]byte, error) {
		if !opened {
			opened = true
			if _, err := d.Token(); err != nil {
				return nil, asBadInput(err)
			}
		}
		if d.More() {
			var text json.RawMessage
			if err := d.Decode(&text); err != nil {
				return nil, asBadInput(err)
			}
			if len(text) > MaxRecordText {
				return nil, asBadInput(errTooLong)
			}
			bounded.left = 2 * MaxRecordText // what the decoder has read ahead is below its buffer
			return text, nil
		}
		if _, err := d.Token(); err != nil { // the closing bracket
			return nil, asBadInput(err)
		}
		if _, err := d.Token(); err == nil {
			return nil, badf("something stands behind the array of records")
		} else if err != io.EOF {
			return nil, asBadInput(err)
		}
		return nil, io.EOF
	}
	return &source{next: next}
}

var errTooLong = fmt.Errorf("an element is longer than %d bytes", MaxRecordText)

func asBadInput(err error) error {
	var syntax *json.SyntaxError
	switch {
	case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
		return badf("the array of records is cut short")
	case errors.As(err, &syntax):
		return badf("the array of records is not JSON: %w", err)
	case errors.Is(err, errTooLong):
		return badInput{errTooLong}
	}
	return err
}

// boundedReader fails once left bytes were read.
type boundedReader struct {
	r    io.Reader
	left int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
