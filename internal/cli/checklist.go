package cli

import (
	"fmt"
	"io"
)

// Results of one check. What was left out, and what is only told, does not make a bundle fail.
const (
	resultOK      = "ok"
	resultFailed  = "FAILED"
	resultLeftOut = "left out"
	resultNote    = "note"
)

// check is one line of what was checked, by what, with what result.
type check struct {
	Result string `json:"result"`
	Check  string `json:"check"`
	By     string `json:"by,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// checklist is what a proof amounts to.
type checklist struct {
	Source  string  `json:"source"`
	Verdict string  `json:"verdict"` // holds, fails
	Origin  string  `json:"origin,omitempty"`
	RoomID  string  `json:"room_id,omitempty"`
	Genesis string  `json:"genesis,omitempty"`
	Topic   string  `json:"topic,omitempty"`
	Records int64   `json:"records,omitempty"`
	Seq     int64   `json:"seq,omitempty"`      // of the one record that is proven
	State   string  `json:"state,omitempty"`    // by the policy
	LogKey  string  `json:"log_key,omitempty"`  // by which the checkpoint of a proof was checked
	Entry   string  `json:"log_name,omitempty"` // origin line of that checkpoint
	Checks  []check `json:"checks"`
}

func (l *checklist) add(result, what, by, detail string, args ...any) {
	l.Checks = append(l.Checks, check{result, what, by, fmt.Sprintf(detail, args...)})
}

// want adds a check that fails with an error, and else says what it found.
func (l *checklist) want(err error, what, by, detail string, args ...any) bool {
	if err != nil {
		l.add(resultFailed, what, by, "%v", err)
		return false
	}
	l.add(resultOK, what, by, detail, args...)
	return true
}

func (l *checklist) holds() bool {
	for _, c := range l.Checks {
		if c.Result == resultFailed {
			return false
		}
	}
	return true
}

// show writes the list, and ends the command with a failure unless all holds.
func (c *client) show(l *checklist, quiet bool) error {
	l.Verdict = "holds"
	if !l.holds() {
		l.Verdict = "fails"
	}
	var err error
	switch {
	case c.json:
		err = asJSON(c.out, l)
	case quiet:
		_, err = fmt.Fprintln(c.out, l.Verdict)
	default:
		err = l.show(c.out)
	}
	if err == nil && l.Verdict != "holds" {
		err = errReported
	}
	return err
}

func (l *checklist) show(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", l.Verdict)
	var rows [][]string
	for _, c := range l.Checks {
		rows = append(rows, []string{c.Result, short(c.Check, 60), short(c.By, 100), short(c.Detail, 400)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	records, seq := "", ""
	if l.Records > 0 {
		records = fmt.Sprint(l.Records)
	}
	if l.Seq > 0 {
		seq = fmt.Sprint(l.Seq)
	}
	return fields(w, "source", plain(l.Source), "host", short(l.Origin, 300), "room", short(l.RoomID, 128), "topic", short(l.Topic, 200), "records", records,
		"seq", seq, "genesis", plain(l.Genesis), "log", short(l.Entry, 500), "log key", short(l.LogKey, 600), "state", l.State)
}
