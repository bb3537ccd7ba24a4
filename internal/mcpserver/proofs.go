package mcpserver

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/keys"
	"github.com/witan-adp/witan/internal/remote"
	"github.com/witan-adp/witan/internal/tilelog"
)

func (t *tools) addProofs(s *mcp.Server) {
	seq := func(least int, description string) props {
		return props{"type": "integer", "minimum": least, "description": description}
	}
	add(t, s, &mcp.Tool{Name: "get_proof", Annotations: reads("Prove that a record is in a room"), InputSchema: t.room(props{"seq": seq(1, "the record to prove")}, "seq"),
		Description: "Prove by a Merkle proof (RFC 6962) that the record at a seq is in the room. The proof is checked here, and the checkpoint that the host signed, where the host itself is asked."}, t.getProof)
	add(t, s, &mcp.Tool{Name: "get_attestations", Annotations: reads("List who vouches for an archive"), InputSchema: object(props{"room": t.room(nil)["properties"].(props)["room"], "cursor": str(2000, "next_cursor of the answer before")}, "room"),
		Description: "List what was signed about the archive of a room: the statement of its host, the attestations of witnesses who recomputed it, and evidence of anybody who signed two stories. Signatures are checked here; whether a signer is to be trusted is for you to say."}, t.getAttestations)
}

type proofIn struct {
	Room string `json:"room"`
	From string `json:"from"`
	Seq  int64  `json:"seq"`
}

type proofFacts struct {
	Room       string           `json:"room"`
	Seq        int64            `json:"seq"`
	RecordHash string           `json:"record_hash"`
	Size       int64            `json:"size" jsonschema:"records that the root is of"`
	Root       string           `json:"root"`
	Hashes     []string         `json:"hashes" jsonschema:"in the order of RFC 6962 2.1.1"`
	Holds      bool             `json:"holds" jsonschema:"the record and the proof lead to the root"`
	Checkpoint *checkpointFacts `json:"checkpoint,omitempty"`
	Note       string           `json:"note,omitempty"`
}

type checkpointFacts struct {
	Size     uint64 `json:"size"`
	SignedBy string `json:"signed_by" jsonschema:"verifier key of the log of the host, from its did.json"`
	Text     string `json:"text" jsonschema:"the checkpoint as it was signed, without cosignatures"`
}

func (t *tools) getProof(ctx context.Context, in proofIn) (f proofFacts, u none, err error) {
	c, p, err := t.place(in.Room, in.From == fromHost)
	if err != nil {
		return f, u, err
	}
	list, err := c.Events(ctx, p, in.Seq-1, 1, 0)
	if err != nil {
		return f, u, err
	}
	if len(list) == 0 {
		return f, u, remote.Argumentf("the room has no record at seq %d (yet); read_room tells how many there are", in.Seq)
	}
	at := remote.Link{RoomID: p.ID, Seq: in.Seq - 1}
	rec, err := at.Take(list[0])
	if err != nil {
		return f, u, err
	}
	q := "?seq=" + strconv.FormatInt(in.Seq, 10)
	f = proofFacts{Room: p.URL(), Seq: in.Seq, RecordHash: rec.Hash}
	var signed *tilelog.Checkpoint
	if f.Checkpoint, signed, f.Note, err = t.checkpoint(ctx, c, p); err != nil {
		return f, u, err
	}
	if signed != nil && signed.Size < uint64(in.Seq) {
		f.Checkpoint, signed, f.Note = nil, nil, fmt.Sprintf("the newest checkpoint is over %d records and has not seen this one; ask again in half a minute", signed.Size)
	}
	if signed != nil {
		q += "&size=" + strconv.FormatUint(signed.Size, 10)
	}
	v, _, err := c.Get(ctx, fetch.Request{URL: p.URL() + "/proof" + q})
	if err != nil {
		return f, u, err
	}
	f.Size, f.Root = number(v.Get("size")), hash(v.Get("root").Text())
	var hashes [][]byte
	for h := range v.Get("hashes").Elements() {
		raw, err := adp.DecodeHash(h.Text())
		if err != nil {
			return f, u, fmt.Errorf("the proof is malformed: %w", err)
		}
		hashes, f.Hashes = append(hashes, raw[:]), append(f.Hashes, h.Text())
	}
	root, err := adp.DecodeHash(f.Root)
	if err != nil {
		return f, u, fmt.Errorf("the proof has no root: %w", err)
	}
	if signed != nil && (root != signed.Root || uint64(f.Size) != signed.Size) {
		return f, u, fmt.Errorf("the proof leads to another root than the one that the host signed; the host contradicts itself")
	}
	leaf, err := adp.DecodeHash(rec.Hash)
	if err == nil {
		err = adp.VerifyInclusion(leaf, uint64(in.Seq-1), uint64(f.Size), hashes, root)
	}
	if err != nil {
		return f, u, fmt.Errorf("the proof does not hold: %w", err)
	}
	f.Holds = true
	return f, u, nil
}

// checkpoint reads what the host signed about the room, and checks it by the key in the did.json of the host.
func (t *tools) checkpoint(ctx context.Context, c *remote.Client, p remote.Room) (*checkpointFacts, *tilelog.Checkpoint, string, error) {
	if strings.Contains(p.Base, "/m/") {
		return nil, nil, "a mirror's copy: it proves the record against the root of that copy; what the host signed is to be had from the host (witan proof, or \"from\": \"host\")", nil
	}
	text, err := c.HTTP.Do(ctx, fetch.Request{URL: p.URL() + "/checkpoint", MaxBytes: tilelog.MaxCheckpoint})
	if err != nil {
		return nil, nil, "", remote.Unreachable(err)
	}
	if text.Status != http.StatusOK {
		return nil, nil, "the host signs no checkpoint of this room (it signs about public rooms only, and not at a private address), so that the root is its bare word", nil
	}
	did, err := c.HTTP.Do(ctx, fetch.Request{URL: p.Base + "/.well-known/did.json", MaxBytes: keys.MaxDocument})
	if err != nil {
		return nil, nil, "", remote.Unreachable(err)
	}
	doc, err := keys.ParseDocument(p.Base, did.Body)
	if err != nil {
		return nil, nil, "", fmt.Errorf("the keys of %s: %w", p.Base, err)
	}
	signed, err := tilelog.OpenCheckpoint(text.Body, doc.Log)
	if err != nil {
		return nil, nil, "", fmt.Errorf("the checkpoint of the room: %w", err)
	}
	genesis, ok := strings.CutPrefix(signed.Origin, fetch.Authority(p.Base)+"/witan/rooms/"+p.ID+"/")
	if !ok || !adp.IsHash(genesis) {
		return nil, nil, "", fmt.Errorf("the checkpoint is of %q, which is another log than that of the room", signed.Origin)
	}
	vkey, err := tilelog.VerifierKey(signed.Origin, doc.Log)
	if err != nil {
		return nil, nil, "", err
	}
	return &checkpointFacts{signed.Size, vkey, ofKey(string(text.Body), signed.Origin)}, &signed, "", nil
}

// ofKey is a signed note with the signatures of one name alone: names of others are words of others.
func ofKey(signed, name string) string {
	body, rest, _ := strings.Cut(signed, "\n\n")
	out := body + "\n\n"
	for line := range strings.Lines(rest) {
		if strings.HasPrefix(line, "— "+name+" ") {
			out += line
		}
	}
	return out
}

type signedFacts struct {
	Kind        string `json:"kind" jsonschema:"statement (by the host) or attestation (by a witness)"`
	Signer      string `json:"signer"`
	Signature   string `json:"signature" jsonschema:"good or bad"`
	Hash        string `json:"hash"`
	LastSeq     int64  `json:"last_seq"`
	ArchiveRoot string `json:"archive_root"`
	EventsCID   string `json:"events_cid,omitempty"`
	Complete    bool   `json:"complete,omitempty" jsonschema:"the room had ended, and the witness held all of it"`
	At          string `json:"at"`
}

type evidenceFacts struct {
	Class string `json:"class" jsonschema:"proof (convinces everybody) or observation (what the daemon saw)"`
	Kind  string `json:"kind"`
	Agent string `json:"agent,omitempty"`
	Seen  string `json:"seen"`
}

type attestationFacts struct {
	Room     string          `json:"room"`
	Attested string          `json:"attested,omitempty" jsonschema:"by the policy of the daemon"`
	Signed   []signedFacts   `json:"signed"`
	Evidence []evidenceFacts `json:"evidence"`
	Next     string          `json:"next_cursor,omitempty" jsonschema:"there is more: give it as cursor"`
}

type attestationIn struct {
	Room   string `json:"room"`
	Cursor string `json:"cursor"`
}

func (t *tools) getAttestations(ctx context.Context, in attestationIn) (f attestationFacts, u []string, err error) {
	c, p, err := t.place(in.Room, false)
	if err != nil {
		return f, nil, err
	}
	read, text, err := t.readRoom(ctx, roomIn{Room: in.Room})
	if err != nil {
		return f, nil, err
	}
	host, err := remote.OriginOf(read.URL)
	if err != nil {
		return f, nil, err
	}
	f, u = attestationFacts{Room: read.URL, Attested: read.Attested, Signed: []signedFacts{}, Evidence: []evidenceFacts{}}, []string{text.Topic}
	kind, after, _ := strings.Cut(in.Cursor, ":")
	at := max(0, slices.Index(vouching, kind))
	if in.Cursor != "" && vouching[at] != kind {
		return f, nil, remote.Argumentf("the cursor is none of this tool; leave it out to begin anew")
	}
	for _, kind := range vouching[at:] {
		if len(f.Signed)+len(f.Evidence) >= vouchingPage {
			f.Next = kind + ":"
			break
		}
		q := url.Values{"origin": {host}, "room_id": {p.ID}, "limit": {strconv.Itoa(vouchingPage)}}
		if after != "" {
			q.Set("cursor", after)
			after = ""
		}
		list, next, _, err := t.getList(ctx, c, t.o.Daemon+"/v1/witness/"+kind+"?"+q.Encode())
		if err != nil {
			return f, nil, err
		}
		for _, v := range list {
			if kind == "evidence" {
				f.Evidence = append(f.Evidence, shownEvidence(v))
			} else {
				f.Signed = append(f.Signed, signedBy(strings.TrimSuffix(kind, "s"), v))
			}
		}
		if next != "" {
			f.Next = kind + ":" + cursor(next)
			break
		}
	}
	return f, u, nil
}

// vouching are the lists of what was signed, in the order in which they are shown, so many entries in one answer.
var vouching = []string{"statements", "attestations", "evidence"}

const vouchingPage = 50

func shownEvidence(v value) evidenceFacts {
	e := evidenceFacts{Class: word(v.Get("class").Text()), Kind: word(v.Get("kind").Text()), Seen: clock(number(v.Get("seen_at")))}
	if id := v.Get("agent"); id.Exists() {
		e.Agent = agent(id.Text())
	}
	return e
}

// signedBy checks one envelope by itself.
func signedBy(kind string, v value) signedFacts {
	e, err := adp.ParseEnvelope(v)
	if err != nil {
		return signedFacts{Kind: kind, Signature: "bad", Signer: "?"}
	}
	f := signedFacts{Kind: kind, Signature: "good", Signer: agent(string(e.Actor)), Hash: hash(e.Hash), LastSeq: number(e.Payload.Get("last_seq")), ArchiveRoot: hash(e.Payload.Get("archive_root").Text()),
		EventsCID: word(e.Payload.Get("events_cid").Text()), At: clock(e.CreatedAt)}
	f.Complete, _ = e.Payload.Get("complete").Bool()
	err = e.CheckShape()
	if err == nil {
		err = e.CheckHash()
	}
	if err == nil {
		err = e.CheckSignature()
	}
	if err != nil || e.Protocol != adp.WitnessProtocol {
		f.Signature = "bad"
	}
	return f
}
