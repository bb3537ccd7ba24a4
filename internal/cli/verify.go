package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/inspect"
)

type verifyFlags struct {
	quiet, allowUnverifiable, allowWithheld bool
	manifest                                string
	cid                                     string
	policy, record, logKey                  string
}

func verifyCommand() *cobra.Command {
	c := &client{}
	var f verifyFlags
	cmd := &cobra.Command{Use: "verify FILE|URL", Short: "Verify an archive or a room in full, a proof bundle, or a proof",
		Example: `  witan verify room.jsonl
  witan verify https://mirror.example/m/rooms.example/v1/rooms/ID
  witan verify room.witan --policy policy.toml`, Args: cobra.ExactArgs(1),
		Long: `Verify an archive or a room in full: strict JSON, hashes, signatures, links, whether each event was allowed when it was accepted, and what the
manifest says of it all. FILE is an archive.jsonl, a file with a record a line, or a JSON array of records; - is standard input. URL is that
of a room, at its host or at a mirror.

The verdict is one of
  verified          all of it is good
  violations        authentic and linked, but the host accepted what the protocol forbids
  unverifiable      authentic and linked, but some events cannot be judged, such as those of a type pack that is not at hand
  withheld          authentic and linked, but the host keeps what some records say back: their signatures, and the digests of all
                    records together, cannot be checked
  archive-mismatch  the records are not what the manifest, the CID or the room resource says
  broken            from some record on it is not authentic or not linked

FILE may also be a proof bundle that "witan export" made, or a proof that "witan proof" or any C2SP tool made. Of these a checklist is
written: what was checked, by what, with what result. Nobody is asked anything. Whom you trust stands in the file of --policy: keys
[witness.policy] and [[witness.trust]], as in "witan config default".

The exit status is 0 only when all is verified.`,
		RunE: c.do(func(ctx context.Context, args []string) error {
			if !strings.Contains(args[0], "://") {
				switch kind, err := c.kind(args[0]); {
				case err != nil:
					return err
				case kind == kindBundle:
					return c.verifyBundle(ctx, args[0], f)
				case kind == kindProof:
					return c.verifyProof(args[0], f)
				}
			}
			if f.policy != "" || f.record != "" || f.logKey != "" {
				return usagef("--policy is for proof bundles (witan export) and proofs (witan proof), --record and --log-key for proofs")
			}
			in, err := c.inspect(ctx, args[0], f)
			if err != nil {
				return err
			}
			if f.cid != "" {
				in.CheckCID(f.cid)
			}
			if err := c.report(in, f); err != nil {
				return err
			}
			if v := in.Verdict(); v != "verified" && (v != "unverifiable" || !f.allowUnverifiable) && (v != "withheld" || !f.allowWithheld) {
				return errReported
			}
			return nil
		})}
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "write the verdict only")
	cmd.Flags().BoolVar(&f.allowUnverifiable, "allow-unverifiable", false, "exit with 0 also when some events cannot be judged")
	cmd.Flags().BoolVar(&f.allowWithheld, "allow-withheld", false, "exit with 0 also when some records are withheld")
	cmd.Flags().StringVar(&f.manifest, "manifest", "", "file with the manifest (GET …/archive) that FILE belongs to")
	cmd.Flags().StringVar(&f.cid, "cid", "", "the events CID or the bundle CID that the archive must have")
	cmd.Flags().StringVar(&f.policy, "policy", "", "file that says which witnesses of a proof bundle are enough, and whose keys are known")
	cmd.Flags().StringVar(&f.record, "record", "", "file with the record, or the envelope, that a proof is about")
	cmd.Flags().StringVar(&f.logKey, "log-key", "", "verifier key of the log that a proof is of, name+id+key")
	c.output(cmd)
	return c.key(cmd)
}

// inspect verifies a file or what stands at a URL.
func (c *client) inspect(ctx context.Context, name string, f verifyFlags) (*inspect.Inspection, error) {
	if f.cid != "" {
		if _, _, err := adp.ParseCID(f.cid); err != nil {
			return nil, usagef("--cid: %v", err)
		}
	}
	if strings.Contains(name, "://") {
		if f.manifest != "" {
			return nil, usagef("--manifest is for files; a room's URL brings its own manifest")
		}
		p, err := c.place(name)
		if err != nil {
			return nil, err
		}
		return c.inspectRoom(ctx, p)
	}
	in := inspect.New(name)
	if f.manifest != "" {
		text, err := c.read(f.manifest)
		if err != nil {
			return nil, err
		}
		if in.Claim, err = adp.ParseClaim(text); err != nil {
			return nil, fmt.Errorf("%s: %w", f.manifest, err)
		}
	}
	r, size := c.in, int64(0)
	if name == "-" {
		in.Source = "standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		r = file
	}
	return in, c.stream(ctx, in, "verifying", r, size)
}

func (c *client) report(in *inspect.Inspection, f verifyFlags) error {
	r := in.Report()
	switch {
	case c.json:
		return asJSON(c.out, r)
	case f.quiet:
		_, err := fmt.Fprintln(c.out, r.Verdict)
		return err
	}
	return showReport(c.out, r)
}

// showReport writes it for people: the verdict and its reasons first.
func showReport(w io.Writer, r inspect.Report) error {
	fmt.Fprintln(w, r.Verdict)
	if r.Broken != nil {
		fmt.Fprintf(w, "  seq %d: %s\n", r.Broken.Seq, short(r.Broken.Reason, 500))
	}
	if r.Withheld > 0 {
		fmt.Fprintf(w, "  %d withheld: the signatures of these records cannot be checked, and the events digest cannot be checked\n", r.Withheld)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "  %s\n", short(p, 500))
	}
	var rows [][]string
	for _, f := range r.Findings {
		rows = append(rows, []string{fmt.Sprintf("  seq %d", f.Seq), string(f.Outcome), short(strings.TrimPrefix(string(f.Rule)+": "+f.Reason, ": "), 300)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if more := r.Counts[room.Violation] + r.Counts[room.Unverifiable] + r.Counts[room.Withheld] - int64(len(r.Findings)); more > 0 {
		fmt.Fprintf(w, "  … and %d more\n", more)
	}
	span := ""
	if r.Records > 0 {
		span = utc(r.FirstAt) + " – " + utc(r.LastAt)
	}
	bundle := ""
	if r.BundleCID != "" {
		bundle = fmt.Sprintf("%s (%d bytes)", r.BundleCID, r.BundleBytes)
	}
	judged := fmt.Sprintf("%d allowed, %s, %d unverifiable", r.Counts[room.Allowed], count(r.Counts[room.Violation], "violation"), r.Counts[room.Unverifiable])
	if r.Withheld > 0 {
		judged += fmt.Sprintf(", %d withheld", r.Withheld)
	}
	fmt.Fprintln(w)
	return fields(w, "source", plain(r.Source), "room", short(r.RoomID, 128), "host", short(r.Host, 200), "url", short(r.URL, 300), "topic", short(r.Topic, 200),
		"records", fmt.Sprintf("%d by %s", r.Records, count(int64(r.Authors), "author")),
		"judged", judged,
		"time", span, "manifest", r.Manifest, "genesis", r.Genesis, "last hash", r.LastHash, "root", r.ArchiveRoot, "events", r.EventsDigest,
		"events CID", r.EventsCID, "bundle CID", bundle)
}
