package proofbundle

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

const block = 512

// header is the ustar header of a member: mode 0644, no owner, no time.
func header(name string, size int64) (h [block]byte) {
	copy(h[0:100], name)
	copy(h[100:], "0000644\x00") // mode
	copy(h[108:], "0000000\x00") // uid
	copy(h[116:], "0000000\x00") // gid
	copy(h[124:], fmt.Sprintf("%011o\x00", size))
	copy(h[136:], "00000000000\x00") // mtime
	copy(h[148:], "        ")        // the sum is taken over spaces
	h[156] = '0'                     // a regular file
	copy(h[257:], "ustar\x0000")
	copy(h[329:], "0000000\x000000000\x00") // devmajor, devminor
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// readHeader takes the one header that a member of this name and some size has.
func readHeader(r io.Reader, name string) (size int64, err error) {
	var h [block]byte
	if err := readFull(r, h[:]); err != nil {
		return 0, err
	}
	size, err = strconv.ParseInt(string(h[124:135]), 8, 64)
	if err != nil || size < 0 || h != header(name, size) {
		return 0, malformed("where %s belongs stands something else", name)
	}
	return size, nil
}

// Is tells whether a file that begins so can be a proof bundle: 512 bytes say it.
func Is(begin []byte) bool {
	return len(begin) >= block && bytes.HasPrefix(begin, []byte(manifestName+"\x00")) && bytes.Equal(begin[257:265], []byte("ustar\x0000"))
}

func padding(size int64) int64 { return (block - size%block) % block }

func skipPadding(r io.Reader, size int64) error {
	var pad [block]byte
	n := padding(size)
	if err := readFull(r, pad[:n]); err != nil {
		return err
	}
	if pad != [block]byte{} {
		return malformed("the padding behind a part is not zero")
	}
	return nil
}

func readFull(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	return cut(err)
}

// cut says what the end of the bytes means.
func cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return malformed("it is cut short")
	}
	return err
}
