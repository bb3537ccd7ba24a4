package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// What the documents and the help of the commands tell people to type can be typed: the
// command is there, takes these flags, and that many arguments.
func TestWhatIsToldCanBeTyped(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range append(files, "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range typed(string(text)) {
			n++
			if err := typable(line); err != nil {
				t.Errorf("%s: %s\n\t%v", filepath.Base(file), line, err)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d commands were found in the documents", n)
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.SplitSeq(c.Example, "\n") {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if _, after, piped := strings.Cut(line, "| "); piped {
				line = after
			}
			if err := typable(line); err != nil {
				t.Errorf("help of %s: %s\n\t%v", c.CommandPath(), line, err)
			}
		}
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(rootCommand())
}

var span = regexp.MustCompile("`(witan [^`]+)`")

// typed finds the command lines in a document: in its blocks of code, and between
// backticks in its text.
func typed(text string) (lines []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	code := false
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "```") {
			code = !code
			continue
		}
		if !code {
			for _, m := range span.FindAllStringSubmatch(strings.ReplaceAll(line, `\|`, "|"), -1) {
				lines = append(lines, m[1])
			}
			continue
		}
		line, _, _ = strings.Cut(line, "  # ")
		for part := range strings.SplitSeq(line, ";") {
			if _, after, piped := strings.Cut(part, "| "); piped {
				part = after
			}
			if part = strings.TrimPrefix(strings.TrimSpace(part), "./"); strings.HasPrefix(part, "witan ") {
				lines = append(lines, part)
			}
		}
	}
	return lines
}

// typable tells what is wrong with a command line. The name of a command alone may stand
// for it.
func typable(line string) error {
	line, _, _ = strings.Cut(line, " > ")
	line, _, _ = strings.Cut(line, "  (")
	line = strings.NewReplacer("[", "", "]", "", "…", "", " N", " 1").Replace(line)
	cmd, rest, err := rootCommand().Find(words(line)[1:])
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil || len(rest) == 0 {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// words parts a line as a shell does, as far as documents need it.
func words(line string) (out []string) {
	for {
		line = strings.TrimLeft(line, " ")
		if line == "" {
			return out
		}
		if q := line[0]; q == '"' || q == '\'' {
			word, after, _ := strings.Cut(line[1:], string(q))
			out, line = append(out, word), after
			continue
		}
		word, after, _ := strings.Cut(line, " ")
		out, line = append(out, word), after
	}
}
