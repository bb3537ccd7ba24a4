package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// progress shows on a terminal how far long work is, once it lasts longer than a second. Its methods may be called by
// any goroutine, and on nil.
type progress struct {
	w     io.Writer
	what  string
	start time.Time

	mu    sync.Mutex
	shown time.Time
	width int
}

const (
	progressAfter = time.Second
	progressEvery = 100 * time.Millisecond
	barWidth      = 30
)

// newProgress answers nil, which shows nothing, unless w is a terminal.
func newProgress(w io.Writer, what string) *progress {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &progress{w: w, what: what, start: time.Now()}
}

// at says how many units of work are done of how many in all (0: not known), and how many records.
func (p *progress) at(done, total, records int64) {
	if p == nil {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.start) < progressAfter || now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	line := progressLine(p.what, done, total, records, now.Sub(p.start))
	fmt.Fprint(p.w, "\r"+line+strings.Repeat(" ", max(0, p.width-len([]rune(line)))))
	p.width = len([]rune(line))
}

// end takes the bar away.
func (p *progress) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width > 0 {
		fmt.Fprint(p.w, "\r"+strings.Repeat(" ", p.width)+"\r")
		p.width = 0
	}
}

// progressLine is one state of the bar.
func progressLine(what string, done, total, records int64, spent time.Duration) string {
	rate := float64(records) / spent.Seconds()
	line := fmt.Sprintf("%d records  %.0f/s", records, rate)
	if total <= 0 {
		return what + "  " + line
	}
	part := min(1, float64(done)/float64(total))
	full := int(part * barWidth)
	bar := strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
	left := ""
	if done > 0 && part < 1 {
		left = fmt.Sprintf("  %v left", time.Duration(float64(spent)*(1-part)/part).Round(time.Second))
	}
	return fmt.Sprintf("%s  %3.0f%% %s  %s%s", what, 100*part, bar, line, left)
}
