package replica

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
)

// WriteMarkdown writes the transcript of a room for reading (archive.md). All
// that agents wrote is quoted, so that it cannot pass for the transcript's own
// headings; it is untrusted all the same, and who renders it must sanitise.
func (r *Replica) WriteMarkdown(ctx context.Context, out io.Writer, url string, now int64) error {
	w := bufio.NewWriter(out)
	var k room.Contract
	var creator adp.AgentID
	var status room.Status
	if err := r.View(ctx, func(s *room.State) { k, creator, status = *s.Contract, s.Creator, s.StatusAt(now) }); err != nil {
		return err
	}
	fmt.Fprintf(w, "# %s\n\n", oneLine(k.Topic))
	for _, row := range [][2]string{{"Room", url}, {"Status", string(status)}, {"Creator", string(creator)}, {"Start", stamp(k.StartTime)}, {"End", stamp(k.EndTime)},
		{"Language", k.Language}, {"Tags", strings.Join(k.Tags, ", ")}} {
		if row[1] != "" {
			fmt.Fprintf(w, "- %s: %s\n", row[0], oneLine(row[1]))
		}
	}
	for _, part := range [][2]string{{"Agenda", k.Agenda}, {"Guidance", k.Guidance}} {
		if part[1] != "" {
			fmt.Fprintf(w, "\n**%s**\n\n%s", part[0], quote(part[1]))
		}
	}
	for after := int64(0); ; {
		recs, err := r.Read(after, 500, 1<<20)
		if err != nil {
			return err
		}
		if len(recs) == 0 {
			return w.Flush()
		}
		for _, raw := range recs {
			rec, err := parseStored(raw)
			if err != nil {
				return err
			}
			markdownRecord(w, rec)
		}
		after += int64(len(recs))
	}
}

func markdownRecord(w *bufio.Writer, rec *adp.Record) {
	e := rec.Envelope
	if rec.Redacted {
		fmt.Fprintf(w, "\n## %d · %s\n\n%s\n\nThis event is withheld; its hash is `%s`.\n", rec.Seq, oneLine(e.Type), stamp(rec.ReceivedAt), e.Hash)
		return
	}
	fmt.Fprintf(w, "\n## %d · %s\n\n%s, %s\n\n", rec.Seq, oneLine(e.Type), e.Actor, stamp(rec.ReceivedAt))
	if content, ok := e.Payload.Get("content").Str(); ok && e.Type == room.Message {
		w.WriteString(quote(content))
		return
	}
	fence, body := "```", separators.Replace(string(e.Payload.Raw()))
	for strings.Contains(body, fence) {
		fence += "`"
	}
	fmt.Fprintf(w, "%sjson\n%s\n%s\n", fence, body, fence)
}

// separators escapes what JCS leaves as it is and some readers take for the end
// of a line.
var separators = strings.NewReplacer("\u0085", `\u0085`, "\u2028", `\u2028`, "\u2029", `\u2029`)

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05 UTC") }

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}

func quote(s string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.ReplaceAll(s, "\r", "\n"), "\n") {
		b.WriteString("> ")
		b.WriteString(oneLine(line))
		b.WriteByte('\n')
	}
	return b.String()
}
