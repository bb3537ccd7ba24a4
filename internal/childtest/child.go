// Package childtest runs a test binary again as a process of its own, for tests that
// kill it: what a process had answered must be there after its death.
//
// TestMain of such a test looks at its environment, and does the work of the child in
// place of the tests. It is for tests only.
package childtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Process is a child.
type Process struct {
	t         testing.TB
	cmd       *exec.Cmd
	lines     *bufio.Reader
	complaint bytes.Buffer
	wait      func() error
}

// Start starts a child with variables, name=value, added to its environment. It is
// killed at the end of the test at the latest.
func Start(t testing.TB, env ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.complaint
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines, p.wait = bufio.NewReader(out), sync.OnceValue(p.cmd.Wait)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// Line is the next line that the child prints; ok is false at the end of its life. A
// line without its end was not printed whole, and is none.
func (p *Process) Line() (text string, ok bool) {
	line, err := p.lines.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err == nil
}

// Kill ends the child at once, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may be gone
	_ = p.wait()
}

// Died waits for the end of the child, and fails the test unless a signal killed it.
func (p *Process) Died() {
	p.t.Helper()
	err := p.wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 { // -1: by a signal
		p.t.Fatalf("the child ended by itself: %v %s", err, p.complaint.String())
	}
}

// KillWhen hands on the lines that a child prints, kills it when one of them was enough,
// and hands on what it had still printed.
func KillWhen(t testing.TB, enough func(line string) bool, env ...string) {
	t.Helper()
	p := Start(t, env...)
	killed := false
	for {
		line, ok := p.Line()
		if !ok {
			break
		}
		if enough(line) && !killed {
			killed = true
			if err := p.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.Died()
}

// TB stands in for the test where there is none, in a child: it dies of what fails.
type TB struct{ testing.TB }

// Helper implements testing.TB.
func (TB) Helper() {}

// Cleanup implements testing.TB: a child is killed, and leaves everything as it is.
func (TB) Cleanup(func()) {}

// Context implements testing.TB.
func (TB) Context() context.Context { return context.Background() }

// Fatal implements testing.TB.
func (TB) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// Error implements testing.TB.
func (TB) Error(args ...any) { TB{}.Fatal(args...) }

// Fatalf implements testing.TB.
func (TB) Fatalf(format string, args ...any) { TB{}.Fatal(fmt.Sprintf(format, args...)) }
