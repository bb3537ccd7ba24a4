package cli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/remote"
	"github.com/witan-adp/witan/internal/tilelog"
	"github.com/witan-adp/witan/witness"
)

// maxProofText bounds a proof file: hashes and a checkpoint.
const maxProofText = 128 << 10

func proofCommand() *cobra.Command {
	c := &client{}
	var seq int64
	var entry, out string
	cmd := &cobra.Command{Use: "proof ROOM|URL", Short: "Prove one message of a room, or one entry of a log, and check it",
		Example: `  witan proof https://rooms.example/v1/rooms/ID --seq 42 -o m.tlog-proof
  witan proof https://rooms.example --entry HASH`, Args: cobra.ExactArgs(1),
		Long: `Prove one message of a room, or one entry of the log of a daemon, and check the proof.

With --seq, it is of a room, named by its ID at --host or by its URL: the record at this seq is in the room, by a checkpoint that the host of
the room signed. With --entry, the URL is that of a daemon or of one of its rooms: a statement or an attestation is in its log.

The proof is a C2SP tlog-proof (https://c2sp.org/tlog-proof). With -o it is written to a file, and what it is about to FILE.json beside
it; "witan verify FILE --record FILE.json" checks both without a network.`}
	cmd.Flags().Int64Var(&seq, "seq", 0, "the seq of the record to prove")
	cmd.Flags().StringVar(&entry, "entry", "", "the hash of the statement or the attestation to prove")
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write the proof to")
	c.flags(cmd)
	cmd.RunE = c.do(func(ctx context.Context, args []string) error {
		if (seq > 0) == (entry != "") || seq < 0 {
			return usagef("say what to prove: --seq N, from 1 on, or --entry HASH")
		}
		var p *proven
		var err error
		if entry != "" {
			p, err = c.proveEntry(ctx, args[0], entry)
		} else {
			p, err = c.proveRecord(ctx, args[0], seq)
		}
		if err != nil {
			return err
		}
		l := p.check(args[0])
		if out != "" && l.holds() {
			if err := errors.Join(writeWhole(out+".json", append(p.subject, '\n')), writeWhole(out, p.proof.Text())); err != nil {
				return err
			}
			c.notef("wrote %s and %s.json", out, out)
		}
		return c.show(l, false)
	})
	return cmd
}

// proven is a proof with what it is about and what is known of the key.
type proven struct {
	proof   tilelog.Proof
	subject []byte // a record, or an envelope
	key     ed25519.PublicKey
	by      string // where the key is from
	origin  string // scheme://host, if known
}

// check judges the proof. It asks nobody.
func (p *proven) check(source string) *checklist {
	l := &checklist{Source: source, Origin: p.origin}
	at, err := tilelog.PeekCheckpoint(p.proof.Checkpoint)
	if !l.want(err, "form", "c2sp.org/tlog-proof@v1", "%d hashes and a checkpoint", len(p.proof.Hashes)) {
		return l
	}
	l.Entry = at.Origin
	var leaf []byte
	if authority, roomID, genesis, ok := witness.ParseRoomOrigin(at.Origin); ok {
		l.RoomID, l.Genesis = roomID, genesis
		leaf, err = p.record(l, roomID)
		if err == nil && p.origin != "" && authorityOf(p.origin) != authority {
			err = fmt.Errorf("the checkpoint is of the host %s", authority)
		}
	} else {
		leaf, err = p.entry(l)
		if err == nil && p.origin != "" && !witness.IsLogOrigin(p.origin, at.Origin) {
			err = fmt.Errorf("the checkpoint is of another log than that of %s", p.origin)
		}
	}
	if err != nil {
		l.add(resultFailed, "what is proven", "its hash and its signature", "%v", err)
		return l
	}
	if p.key == nil {
		l.add(resultFailed, "signature of the checkpoint", "", "no log key is known; give it with --log-key, or in [[witness.policy.origin]] of --policy")
		return l
	}
	if vkey, err := tilelog.VerifierKey(at.Origin, p.key); err == nil {
		l.LogKey = vkey
	}
	_, err = tilelog.OpenCheckpoint(p.proof.Checkpoint, p.key)
	if !l.want(err, "signature of the checkpoint", p.by, "%s at size %d", at.Origin, at.Size) {
		return l
	}
	_, err = p.proof.Verify(leaf, p.key)
	l.want(err, "inclusion", "RFC 6962", "leaf %d of %d", p.proof.Index, at.Size)
	return l
}

// record checks the record that is proven; its leaf is the record hash.
func (p *proven) record(l *checklist, roomID string) ([]byte, error) {
	v, err := adp.ScanDepth(p.subject, adp.RecordDepth)
	if err != nil {
		return nil, err
	}
	r, err := adp.ParseRecord(v) // recomputes both hashes
	if err == nil {
		err = r.CheckSignature()
	}
	switch {
	case err != nil:
		return nil, err
	case r.RoomID != roomID:
		return nil, fmt.Errorf("the record is of room %s", r.RoomID)
	case uint64(r.Seq-1) != p.proof.Index:
		return nil, fmt.Errorf("the record has seq %d, the proof is of seq %d", r.Seq, p.proof.Index+1)
	}
	l.Seq = r.Seq
	l.add(resultOK, "record", "its hash and its signature", "%s by %s at %s", r.Envelope.Type, r.Envelope.Actor, utc(r.ReceivedAt))
	leaf := r.LeafData()
	return leaf[:], nil
}

func (p *proven) entry(l *checklist) ([]byte, error) {
	e, err := authentic(p.subject)
	if err != nil {
		return nil, err
	}
	l.add(resultOK, "entry", "its hash and its signature", "%s by %s at %s", e.Type, e.Actor, utc(e.CreatedAt))
	return e.JSON(), nil
}

func authorityOf(origin string) string { _, a, _ := strings.Cut(origin, "://"); return a }

// plainText reads an answer that is no JSON.
func (c *client) plainText(ctx context.Context, url string, most int64) ([]byte, error) {
	resp, err := c.HTTP.Do(ctx, fetch.Request{URL: url, MaxBytes: most, Header: http.Header{"Accept": {"text/plain"}}})
	if err != nil {
		return nil, remote.Unreachable(err)
	}
	if resp.Status != http.StatusOK {
		return nil, remote.Refusal(resp.Status, resp.Header, resp.Body, url)
	}
	return resp.Body, nil
}

// document reads the keys of an origin.
func (c *client) document(ctx context.Context, origin string) ([]byte, *keys.Document, error) {
	raw, err := c.plainText(ctx, origin+"/.well-known/did.json", keys.MaxDocument)
	if err != nil {
		return nil, nil, err
	}
	doc, err := keys.ParseDocument(origin, raw)
	return raw, doc, err
}

func (c *client) logKey(ctx context.Context, p *proven) error {
	_, doc, err := c.document(ctx, p.origin)
	if err != nil {
		return fmt.Errorf("the keys of %s: %w", p.origin, err)
	}
	p.key, p.by = doc.Log, "the log key in did.json of "+p.origin
	return nil
}

// proveRecord asks for the record, the checkpoint that the host signed, and the proof that leads from one to the other.
func (c *client) proveRecord(ctx context.Context, arg string, seq int64) (*proven, error) {
	at, err := c.place(arg)
	if err != nil {
		return nil, err
	}
	recs, err := c.Events(ctx, at, seq-1, 1, 0)
	if err != nil {
		return nil, err
	}
	if len(recs) == 0 {
		return nil, fmt.Errorf("the room has no record at seq %d yet", seq)
	}
	record, err := recs[0].Canonical()
	if err != nil {
		return nil, err
	}
	origin, err := c.originOfRoom(ctx, at)
	if err != nil {
		return nil, err
	}
	p := &proven{subject: record.Raw(), origin: origin}
	signed, err := c.plainText(ctx, origin+"/v1/rooms/"+at.ID+"/checkpoint", tilelog.MaxCheckpoint)
	if err != nil {
		return nil, fmt.Errorf("the host of the room gives no signed checkpoint, so that nothing vouches for a proof (of a room that has ended, witan export takes what was signed before): %w", err)
	}
	head, err := tilelog.PeekCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	if uint64(seq) > head.Size {
		return nil, fmt.Errorf("the newest checkpoint is over %s and has not seen seq %d; ask again in half a minute", count(int64(head.Size), "record"), seq)
	}
	if err := c.logKey(ctx, p); err != nil {
		return nil, err
	}
	v, _, err := c.Get(ctx, fetch.Request{URL: at.URL() + "/proof?seq=" + strconv.FormatInt(seq, 10) + "&size=" + strconv.FormatUint(head.Size, 10)})
	if err != nil {
		return nil, err
	}
	p.proof = tilelog.Proof{Index: uint64(seq - 1), Checkpoint: signed}
	for h := range v.Get("hashes").Elements() {
		raw, err := adp.DecodeHash(h.Text())
		if err != nil {
			return nil, fmt.Errorf("the proof of %s: %w", at.URL(), err)
		}
		p.proof.Hashes = append(p.proof.Hashes, raw[:])
	}
	return p, nil
}

// originOfRoom is the host of a room. A mirror names it, and must name the one that stands in its path.
func (c *client) originOfRoom(ctx context.Context, at remote.Room) (string, error) {
	_, h, err := c.Get(ctx, fetch.Request{URL: at.URL()})
	if err != nil {
		return "", err
	}
	return roomOrigin(at, h)
}

func roomOrigin(at remote.Room, h http.Header) (string, error) {
	origin, err := remote.OriginOf(at.Base)
	if err != nil {
		return "", err
	}
	_, authority, mirrored := strings.Cut(at.Base, "/m/")
	if !mirrored {
		return origin, nil
	}
	if authority, err = url.PathUnescape(authority); err != nil {
		return "", err
	}
	named := h.Get("Witan-Origin")
	if named == "" {
		named = "https://" + authority
	}
	if origin, err = fetch.Origin(named, true); err != nil || authorityOf(origin) != authority {
		return "", fmt.Errorf("the mirror says that %s is of the host %.200q", at.URL(), named)
	}
	return origin, nil
}

// proveEntry asks for the proof of an entry of a log, and for the entry itself.
func (c *client) proveEntry(ctx context.Context, arg, hash string) (*proven, error) {
	if !adp.IsHash(hash) {
		return nil, usagef("--entry: %q is not the hash of an envelope", hash)
	}
	u, err := c.HTTP.CheckURL(arg)
	if err != nil {
		return nil, usagef("%v", err)
	}
	origin, err := fetch.Origin(u.Scheme+"://"+u.Host, true)
	if err != nil {
		return nil, usagef("%v", err)
	}
	p := &proven{origin: origin}
	if p.proof, err = c.logProof(ctx, origin, hash); err != nil {
		return nil, err
	}
	if err := c.logKey(ctx, p); err != nil {
		return nil, err
	}
	p.subject, err = c.logEntry(ctx, origin, p.proof)
	return p, err
}

// logProof asks for the proof of an envelope in the log of an origin. The checkpoint that stands in it gives way to the same one with
// the signatures of its witnesses.
func (c *client) logProof(ctx context.Context, origin, hash string) (p tilelog.Proof, err error) {
	text, err := c.plainText(ctx, origin+"/v1/witness/log-entry?hash="+url.QueryEscape(hash), maxProofText)
	if err != nil {
		return p, err
	}
	if p, err = tilelog.ParseProof(text); err != nil {
		return p, err
	}
	cosigned, err := c.plainText(ctx, origin+"/log/checkpoint", tilelog.MaxCheckpoint)
	if err != nil {
		return p, err
	}
	if text := cosignature.Text(cosigned); text != "" && text == cosignature.Text(p.Checkpoint) {
		p.Checkpoint = cosigned
	}
	return p, nil
}

// logEntry reads an entry from the bundle in which it stands.
func (c *client) logEntry(ctx context.Context, origin string, p tilelog.Proof) ([]byte, error) {
	head, err := tilelog.PeekCheckpoint(p.Checkpoint)
	if err != nil {
		return nil, err
	}
	if p.Index >= head.Size {
		return nil, fmt.Errorf("the proof is of entry %d in a log of %d", p.Index, head.Size)
	}
	t := tilelog.Tile{Entries: true, Index: p.Index / tilelog.TileWidth}
	t.Width = int(min(tilelog.TileWidth, head.Size-t.Index*tilelog.TileWidth))
	raw, err := c.plainText(ctx, origin+"/log/"+t.Path(), tilelog.TileWidth*(tilelog.MaxEntry+2))
	if err != nil {
		return nil, err
	}
	entries, err := tilelog.ParseBundle(raw, t.Width)
	if err != nil {
		return nil, err
	}
	return entries[p.Index%tilelog.TileWidth], nil
}

// verifyProof checks a proof file.
func (c *client) verifyProof(name string, f verifyFlags) error {
	if f.manifest != "" || f.cid != "" {
		return usagef("--manifest and --cid are for archives")
	}
	if f.record == "" {
		return usagef("name what the proof is about: --record FILE, a record of a room or a signed envelope")
	}
	text, err := c.read(name)
	if err != nil {
		return err
	}
	p := &proven{}
	if p.proof, err = tilelog.ParseProof(text); err != nil {
		l := &checklist{Source: name}
		l.add(resultFailed, "form", "c2sp.org/tlog-proof@v1", "%v", err)
		return c.show(l, f.quiet)
	}
	subject, err := c.readJSON(f.record)
	if err == nil {
		subject, err = subject.Canonical()
	}
	if err != nil {
		return err
	}
	p.subject = subject.Raw()
	head, err := tilelog.PeekCheckpoint(p.proof.Checkpoint)
	if err != nil {
		return err
	}
	if err := p.trust(f, head.Origin); err != nil {
		return err
	}
	return c.show(p.check(name), f.quiet)
}

// trust takes the log key that the caller knows.
func (p *proven) trust(f verifyFlags, line string) error {
	vkey, by := f.logKey, "--log-key"
	rules, err := loadRules(f.policy)
	if err != nil {
		return err
	}
	if vkey == "" && rules != nil {
		for _, o := range rules.settings.Policy.Origins {
			authority, _, _, isRoom := witness.ParseRoomOrigin(line)
			if o.Log != "" && (witness.IsLogOrigin(o.Origin, line) || isRoom && authority == authorityOf(o.Origin)) {
				vkey, by, p.origin = o.Log, "the log key of the policy", o.Origin
			}
		}
	}
	if vkey == "" {
		return nil
	}
	v, err := cosignature.ParseVerifier(vkey)
	if err != nil {
		return usagef("--log-key: %v", err)
	}
	if v.Kind() != cosignature.Log {
		return usagef("--log-key: %s is %v; the key of a log is of type 1", vkey, v.Kind())
	}
	p.key, p.by = v.Key(), by
	// a host signs the checkpoints of its rooms with the key of its log: the name of the key is another one, its host is not
	if authority, _, _, isRoom := witness.ParseRoomOrigin(line); v.Name() != line && !(isRoom && witness.IsLogOrigin("https://"+authority, v.Name())) {
		return usagef("%s: the key is of %s, the proof of %s", by, v.Name(), line)
	}
	return nil
}
