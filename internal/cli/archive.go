package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/inspect"
	"github.com/witan-adp/witan/internal/remote"
)

func archiveCommand(c *client) *cobra.Command {
	var out, manifestFile string
	cmd := &cobra.Command{Use: "archive ROOM", Short: "Download the archive of a room that has ended, verified as it is written", Args: cobra.ExactArgs(1),
		Long: `Download archive.jsonl of a room that has ended, and verify it as it is written. A file that is broken, or not what the manifest says,
is not kept. One that is authentic but holds violations, events that cannot be judged, or records that are withheld, is kept, and the exit status is 1.`,
		RunE: c.do(func(ctx context.Context, args []string) error {
			p, err := c.place(args[0])
			if err != nil {
				return err
			}
			if out == "" {
				out = p.ID + ".jsonl"
			}
			for _, name := range []string{out, manifestFile} {
				if _, err := os.Lstat(name); err == nil {
					return fmt.Errorf("%s exists already; name another file with -o or --manifest", name)
				}
			}
			return c.download(ctx, p, out, manifestFile)
		})}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the file to write (default <room ID>.jsonl)")
	cmd.Flags().StringVar(&manifestFile, "manifest", "", "write the manifest to this file, too: it holds the CID of the other")
	return cmd
}

func (c *client) download(ctx context.Context, p remote.Room, out, manifestFile string) (err error) {
	r, err := c.Resource(ctx, p)
	if err != nil {
		return err
	}
	if r.Status != string(room.Ended) {
		return fmt.Errorf("the room is %s; it has an archive once it has ended", short(r.Status, 40))
	}
	manifest, err := remote.Place{C: &c.Client, P: p}.Manifest(ctx)
	if err != nil {
		return err
	}
	if manifest == nil {
		return fmt.Errorf("the host has made no archive of this room; verify its records with: witan verify %s", p.URL())
	}
	in := inspect.New(p.URL() + "/archive.jsonl")
	in.SetClaim(manifest)
	if in.Claim == nil {
		return errors.New(in.Problems[0])
	}
	s, err := c.OpenBundle(ctx, p)
	if remote.Missing(err) {
		return fmt.Errorf("the host gives out no archive.jsonl; verify its records with: witan verify %s (%w)", p.URL(), err)
	}
	if err != nil {
		return err
	}
	defer s.Close()

	dir, name := filepath.Split(out)
	f, err := os.CreateTemp(filepath.Clean(dir+"."), "."+name+".*.partial")
	if err != nil {
		return err
	}
	defer func() { // nothing is left of a file that was not finished
		if f != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	var body io.Reader = s
	if n := in.Claim.BundleBytes; n > 0 {
		body = io.LimitReader(s, n+1)
	}
	if err := c.stream(ctx, in, "downloading", io.TeeReader(body, f), in.Claim.BundleBytes); err != nil {
		return err
	}
	if v := in.Verdict(); v == "broken" || v == "archive-mismatch" {
		if err := c.report(in, verifyFlags{}); err != nil {
			return err
		}
		return fmt.Errorf("the archive is not kept: %s", v)
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	done := f.Name()
	f = nil
	if err := os.Rename(done, out); err != nil {
		return errors.Join(err, os.Remove(done))
	}
	if manifestFile != "" {
		if err := os.WriteFile(manifestFile, append(in.Claim.JSON(), '\n'), 0o644); err != nil {
			return err
		}
	}
	in.Source = out
	if err := c.report(in, verifyFlags{}); err != nil {
		return err
	}
	if in.Verdict() != "verified" {
		return errReported
	}
	return nil
}
