package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/inspect"
	"github.com/witan-adp/witan/internal/proofbundle"
	"github.com/witan-adp/witan/internal/remote"
	"github.com/witan-adp/witan/witness"
)

func exportCommand() *cobra.Command {
	c := &client{}
	var out string
	cmd := &cobra.Command{Use: "export ROOM", Short: "Write an ended public room and all that vouches for it into one file",
		Example: `  witan export https://rooms.example/v1/rooms/ID -o room.witan`, Args: cobra.ExactArgs(1),
		Long: `Write an ended public room and all that vouches for it into one file: its archive, the statement of its host, the proof that this stands in the
host's log, the attestations of witnesses, proofs against any of them, and the host's keys. ROOM is an ID at --host, or the URL of a room, at its host or at a mirror.

What nobody has, or whoever has it cannot be reached, is left out, and the file says so. The file is checked as it is made, as far as that
is possible without knowing whom you trust; "witan verify FILE --policy POLICY" judges it, without a network.`}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write (default <room ID>.witan)")
	c.flags(cmd)
	cmd.RunE = c.do(func(ctx context.Context, args []string) error {
		at, err := c.place(args[0])
		if err != nil {
			return err
		}
		if out == "" {
			out = at.ID + ".witan"
		}
		return c.export(ctx, at, out)
	})
	return cmd
}

// exporter collects the parts of one file.
type exporter struct {
	*dossier
	c     *client
	at    remote.Room
	seen  string // the daemon that is asked
	spool *os.File
	size  int64
	sum   [32]byte
}

func (c *client) export(ctx context.Context, at remote.Room, out string) error {
	v, h, err := c.Get(ctx, fetch.Request{URL: at.URL()})
	if err != nil {
		return err
	}
	r, err := inspect.ParseResource(v, at.ID)
	if err != nil {
		return err
	}
	if r.Status != string(room.Ended) || r.Visibility != room.Public {
		return fmt.Errorf("the room is %s and %s; only a public room that has ended can be exported", short(r.Visibility, 40), short(r.Status, 40))
	}
	x := &exporter{c: c, at: at, dossier: &dossier{checklist: &checklist{Source: at.URL()}, parts: map[string][]byte{}}}
	x.manifest = proofbundle.Manifest{RoomID: at.ID, Source: at.URL(), ExportedAt: time.Now().UnixMilli()}
	if x.manifest.Origin, err = roomOrigin(at, h); err != nil {
		return err
	}
	if x.seen, err = remote.OriginOf(at.Base); err != nil {
		return err
	}
	if x.spool, err = os.CreateTemp(filepath.Dir(out), ".witan-export-*"); err != nil {
		return err
	}
	defer os.Remove(x.spool.Name())
	defer x.spool.Close()
	if err := x.takeArchive(ctx); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		take func(context.Context) ([]byte, error)
	}{{proofbundle.Document, x.takeDocument}, {proofbundle.Statement, x.takeStatement}, {proofbundle.LogProof, x.takeLogProof},
		{proofbundle.Attestations, x.takeAttestations}, {proofbundle.AttestationProofs, x.takeAttestationProofs}, {proofbundle.Evidence, x.takeEvidence}} {
		text, err := part.take(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && int64(len(text)) > proofbundle.Limit(part.name) {
			err = fmt.Errorf("it has %d bytes", len(text))
		}
		if err != nil {
			reason := short(err.Error(), 300)
			x.manifest.LeftOut = append(x.manifest.LeftOut, proofbundle.Omission{Name: part.name, Reason: reason})
			continue
		}
		x.parts[part.name] = text
		x.manifest.Parts = append(x.manifest.Parts, proofbundle.Part{Name: part.name, Size: int64(len(text)), SHA256: sha256.Sum256(text)})
	}
	x.manifest.Parts = append(x.manifest.Parts, proofbundle.Part{Name: proofbundle.Archive, Size: x.size, SHA256: x.sum})
	x.judge(verifyFlags{allowUnverifiable: true, allowWithheld: true})
	if err := x.write(out); err != nil {
		return err
	}
	c.notef("wrote %s", out)
	return c.show(x.checklist, false)
}

// takeArchive reads archive.jsonl into the spool and verifies it.
func (x *exporter) takeArchive(ctx context.Context) error {
	s, err := x.c.OpenBundle(ctx, x.at)
	if err != nil {
		return err
	}
	defer s.Close()
	h := sha256.New()
	limit := proofbundle.Limit(proofbundle.Archive)
	x.size, err = io.Copy(io.MultiWriter(x.spool, h), io.LimitReader(s, limit+1))
	if err != nil {
		return err
	}
	if x.size > limit {
		return fmt.Errorf("the archive has more than %d bytes, which no proof bundle can hold", limit)
	}
	h.Sum(x.sum[:0])
	if _, err := x.spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := inspect.New(x.at.URL())
	if err := x.c.stream(ctx, in, "verifying", x.spool, x.size); err != nil {
		return err
	}
	if in.Broken != nil {
		return fmt.Errorf("the archive is broken, and nothing can vouch for it: seq %d: %w", in.Broken.Seq, in.Broken.Err)
	}
	x.archive = in
	x.manifest.Genesis = in.Verifier.Digest.Summary().Genesis
	return nil
}

func (x *exporter) takeDocument(ctx context.Context) ([]byte, error) {
	raw, doc, err := x.c.document(ctx, x.manifest.Origin)
	x.document = doc
	return raw, err
}

// ask reads a list of the daemon that is asked, about this room or about its host.
func (x *exporter) ask(ctx context.Context, list string, q url.Values) ([]adp.Value, error) {
	q.Set("origin", x.manifest.Origin)
	return x.c.List(ctx, x.seen+"/v1/witness/"+list+"?"+q.Encode(), maxSigned)
}

func (x *exporter) aboutRoom() url.Values { return url.Values{"room_id": {x.manifest.RoomID}} }

// takeStatement takes the statement that fits best: of the host's key, of this archive, of these bytes. One that does not fit is taken all the
// same when there is no other: it is what the host said.
func (x *exporter) takeStatement(ctx context.Context) ([]byte, error) {
	list, err := x.ask(ctx, "statements", x.aboutRoom())
	if err != nil {
		return nil, err
	}
	var best []byte
	most := -1
	for _, v := range list {
		raw, s := x.ours(v)
		if s == nil {
			continue
		}
		st, err := witness.ParseStatement(s)
		if err != nil || st.Genesis != x.manifest.Genesis {
			continue
		}
		a := x.archive.Verifier.Digest.Summary()
		fit := 0
		for i, ok := range []bool{st.BundleCID == x.archive.BundleCID, st.ArchiveRoot == adp.Encode(a.Root[:]), x.document != nil && adp.NewAgentID(x.document.Agent) == s.Actor} {
			if ok {
				fit += 1 << i
			}
		}
		if fit > most {
			best, most = raw, fit
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s knows of none", x.seen)
	}
	return best, nil
}

// ours reads an envelope of a list; nil for what is not authentic.
func (x *exporter) ours(v adp.Value) ([]byte, *adp.Envelope) {
	c, err := v.Canonical()
	if err != nil {
		return nil, nil
	}
	e, err := authentic(c.Raw())
	if err != nil {
		x.c.notef("%s shows something that is not authentic, which is left out: %v", x.seen, err)
		return nil, nil
	}
	return c.Raw(), e
}

func (x *exporter) takeLogProof(ctx context.Context) ([]byte, error) {
	text, there := x.parts[proofbundle.Statement]
	if !there {
		return nil, errors.New("there is no statement")
	}
	e, err := authentic(text)
	if err != nil {
		return nil, err
	}
	p, err := x.c.logProof(ctx, x.manifest.Origin, e.Hash)
	if err == nil {
		return p.Text(), nil
	}
	if late, again := x.c.logEntryProof(ctx, x.seen, e.Hash); again == nil && x.seen != x.manifest.Origin { // who has read the log while it was there
		return late.proof.Text(), nil
	}
	return nil, err
}

func (x *exporter) takeAttestations(ctx context.Context) ([]byte, error) {
	list, err := x.ask(ctx, "attestations", x.aboutRoom())
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, v := range list {
		raw, e := x.ours(v)
		if e == nil {
			continue
		}
		if a, err := witness.ParseAttestation(e); err == nil && a.Genesis == x.manifest.Genesis {
			out = append(append(out, raw...), '\n')
		}
	}
	return out, nil
}

// takeEvidence takes the proofs about the room and about the log of its host; observations prove nothing to others.
func (x *exporter) takeEvidence(ctx context.Context) ([]byte, error) {
	list, err := x.ask(ctx, "evidence", url.Values{})
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, v := range list {
		if id := v.Get("room_id").Text(); !v.Get("class").Is(witness.ClassProof) || id != "" && (id != x.manifest.RoomID || !v.Get("genesis").Is(x.manifest.Genesis)) {
			continue
		}
		proof, err := witness.ProofText(v)
		if err == nil {
			_, err = witness.VerifyEvidence(proof)
		}
		if err != nil {
			x.c.notef("%s shows a proof that proves nothing, which is left out: %v", x.seen, err)
			continue
		}
		out = append(append(out, proof...), '\n')
	}
	return out, nil
}

// write makes the file, whole or not at all.
func (x *exporter) write(out string) error {
	f, err := os.CreateTemp(filepath.Dir(out), ".witan-export-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = proofbundle.Write(f, x.manifest, func(name string) (io.Reader, error) {
		if name != proofbundle.Archive {
			return bytes.NewReader(x.parts[name]), nil
		}
		_, err := x.spool.Seek(0, io.SeekStart)
		return x.spool, err
	})
	return finishFile(f, out, err)
}

// writeWhole writes a file so that it is there whole or not at all.
func writeWhole(out string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(out), ".witan-export-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	return finishFile(f, out, err)
}

func finishFile(f *os.File, out string, err error) error {
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), out)
}
