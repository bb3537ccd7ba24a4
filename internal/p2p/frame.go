package p2p

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// A frame is its length in four bytes, big endian, and that many bytes. A request is one frame. A response is one status byte and one
// frame: the answer after statusOK, a text of at most maxErrorText bytes after statusError.
const (
	statusOK     = 0
	statusError  = 1
	maxErrorText = 512
)

// readFrame reads one frame of at most limit bytes. A longer one fails with ErrTooLarge before any of it is read. Memory grows with
// what arrives, not with what the length promises.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("read the length of a frame: %w", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if int64(size) > int64(limit) {
		return nil, fmt.Errorf("a frame of %d bytes, where at most %d are allowed: %w", size, limit, ErrTooLarge)
	}
	var b bytes.Buffer
	if n, err := io.CopyN(&b, r, int64(size)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read a frame: %d of %d bytes: %w", n, size, err)
	}
	return b.Bytes(), nil
}

// writeFrame writes prefix (the status byte of a response, or nothing) and the frame. When last is given, it is called before the last
// byte goes out: whoever has read the whole frame knows that last has returned.
func writeFrame(w io.Writer, prefix, data []byte, last func()) error {
	b := make([]byte, 0, len(prefix)+4+len(data))
	b = append(b, prefix...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	b = append(b, data...)
	if last != nil {
		if _, err := w.Write(b[:len(b)-1]); err != nil {
			return err
		}
		last()
		b = []byte{b[len(b)-1]} // a reader that never takes it holds up no more than this
	}
	_, err := w.Write(b)
	return err
}

// readResponse reads a response whose answer has at most limit bytes. An error of the other side comes as *RemoteError.
func readResponse(r io.Reader, limit int) ([]byte, error) {
	var status [1]byte
	if _, err := io.ReadFull(r, status[:]); err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	switch status[0] {
	case statusOK:
		return readFrame(r, limit)
	case statusError:
		text, err := readFrame(r, maxErrorText)
		if err != nil {
			return nil, err
		}
		return nil, &RemoteError{Text: plainText(string(text))}
	}
	return nil, fmt.Errorf("a response has the status %d, where 0 or 1 is allowed", status[0])
}
