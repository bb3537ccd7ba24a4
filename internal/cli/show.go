package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/plaintext"
)

// plain makes one line of text from others safe to show, and short at most n characters of it.
func plain(s string) string        { return plaintext.Line(s) }
func short(s string, n int) string { return plaintext.Short(s, n) }

// agent is the start of an Agent ID, which tells people in one room apart; --json shows all of it.
func agent(id adp.AgentID) string {
	key := strings.TrimPrefix(string(id), "did:agent:")
	return short(key, 13)
}

// clock is a time in Unix ms for people, in the local zone; utc the same in UTC.
func clock(ms int64) string { return time.UnixMilli(ms).Format("2006-01-02 15:04:05") }
func utc(ms int64) string   { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// table writes rows in aligned columns. Cells are to be plain already.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// fields writes names and values, leaving out those without a value.
func fields(w io.Writer, pairs ...string) error {
	var rows [][]string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			rows = append(rows, []string{pairs[i], pairs[i+1]})
		}
	}
	return table(w, rows)
}

// asJSON writes a value as one line of JSON.
func asJSON(w io.Writer, x any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(x)
}

// rawJSON writes scanned JSON as one line: canonical, so that no line end stands inside.
func rawJSON(w io.Writer, v adp.Value) error {
	c, err := v.Canonical()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", c.Raw())
	return err
}

// arrayJSON writes values as one JSON array, one a line.
func arrayJSON(w io.Writer, list []adp.Value) error {
	var b strings.Builder
	b.WriteByte('[')
	for i, v := range list {
		if i > 0 {
			b.WriteString(",\n ")
		}
		c, err := v.Canonical()
		if err != nil {
			return err
		}
		b.Write(c.Raw())
	}
	b.WriteString("]\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// showRecord writes a record for people: a head line, and the text of a message below it.
func showRecord(w io.Writer, r *adp.Record) error {
	e := r.Envelope
	var b strings.Builder
	if r.Redacted {
		_, err := fmt.Fprintf(w, "%d  %s  %s  (withheld)\n", r.Seq, clock(r.ReceivedAt), short(e.Type, 80))
		return err
	}
	fmt.Fprintf(&b, "%d  %s  %s  %s", r.Seq, clock(r.ReceivedAt), agent(e.Actor), short(e.Type, 80))
	if e.Type == room.Message {
		content := e.Payload.Get("content")
		text, isText := content.Str()
		if !isText {
			text = string(content.Raw())
		}
		if kind := e.Payload.Get("content_type").Text(); kind != "text/plain" {
			fmt.Fprintf(&b, "  (%s)", short(kind, 60))
		}
		for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
			b.WriteString("\n    " + plain(strings.ReplaceAll(line, "\t", "    ")))
		}
	} else if p := e.Payload.Raw(); e.Payload.Len() > 0 {
		b.WriteString("  " + short(string(p), 300))
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}
