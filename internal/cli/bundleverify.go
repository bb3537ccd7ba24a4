package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/inspect"
	"github.com/witan-adp/witan/internal/proofbundle"
)

// fileKind is what verify was given.
type fileKind int

const (
	kindArchive fileKind = iota
	kindBundle           // .witan
	kindProof            // .tlog-proof
)

// kind looks at the first bytes of a file, or of standard input, which it leaves to be read from the beginning.
func (c *client) kind(name string) (fileKind, error) {
	var begin []byte
	if name == "-" {
		r := bufio.NewReaderSize(c.in, 4096)
		begin, _ = r.Peek(512) // the reader of it all meets the error again
		c.in = r
	} else {
		f, err := os.Open(name)
		if err != nil {
			return kindArchive, nil // whose reader meets the error again
		}
		defer f.Close()
		begin = make([]byte, 512)
		n, err := io.ReadFull(f, begin)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return 0, err
		}
		begin = begin[:n]
	}
	switch {
	case proofbundle.Is(begin):
		return kindBundle, nil
	case bytes.HasPrefix(begin, []byte("c2sp.org/tlog-proof@")):
		return kindProof, nil
	}
	return kindArchive, nil
}

func loadRules(path string) (*rules, error) {
	if path == "" {
		return nil, nil
	}
	settings, p, err := config.LoadPolicy(path)
	if err != nil {
		return nil, err
	}
	return &rules{settings, p}, nil
}

// verifyBundle checks a .witan file: no network, and no more memory than the replay of its archive takes.
func (c *client) verifyBundle(ctx context.Context, name string, f verifyFlags) error {
	if f.manifest != "" || f.cid != "" || f.record != "" || f.logKey != "" {
		return usagef("--manifest, --cid, --record and --log-key are not for a proof bundle")
	}
	rules, err := loadRules(f.policy)
	if err != nil {
		return err
	}
	r, source, size := c.in, "standard input", int64(0)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil {
			size = info.Size()
		}
		r, source = file, name
	}
	d := &dossier{checklist: &checklist{Source: source}, parts: map[string][]byte{}, rules: rules}
	err = d.read(ctx, r, newProgress(c.err, "verifying"), size)
	if err != nil && !errors.Is(err, proofbundle.ErrFormat) {
		return err
	}
	if err == nil {
		d.judge(f)
	}
	if rules == nil {
		d.add(resultFailed, "policy", "", "none was given: say whom you trust with --policy FILE")
	}
	return c.show(d.checklist, f.quiet)
}

// read takes the file to its end. An archive that is broken is a finding, and is read on to the end of the file.
func (d *dossier) read(ctx context.Context, r io.Reader, bar *progress, size int64) error {
	const what = "container"
	defer bar.end()
	work := &inspect.Counter{R: r, Total: size}
	b, err := proofbundle.NewReader(bufio.NewReaderSize(work, 1<<16))
	for err == nil {
		d.manifest = b.Manifest
		var p proofbundle.Part
		var body io.Reader
		if p, body, err = b.Next(); err != nil {
			break
		}
		if p.Name == proofbundle.Archive {
			in := inspect.New(d.Source)
			in.Progress, in.Work = bar.at, work
			if err = in.Stream(ctx, body); err == nil {
				d.archive = in
			}
			continue
		}
		d.parts[p.Name], err = io.ReadAll(body)
	}
	if err != io.EOF {
		if errors.Is(err, proofbundle.ErrFormat) {
			d.add(resultFailed, what, "its form", "%v", err)
		}
		return err
	}
	if bad := b.Damaged(); bad != nil {
		err = errors.New("damaged: " + strings.Join(bad, ", "))
	} else {
		err = nil
	}
	d.want(err, what, "SHA-256 of its manifest", "%s", strings.Join(partNames(d.manifest), ", "))
	return nil
}

func partNames(m proofbundle.Manifest) (names []string) {
	for _, p := range m.Parts {
		names = append(names, p.Name)
	}
	return names
}
