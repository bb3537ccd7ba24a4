package page

import (
	"strings"

	"github.com/witan-adp/witan/internal/page/verifier"
)

// worker is the path of the worker that verifies in the browser, "" when this
// build has none.
func (s *Site) worker() string {
	if !s.verifier.Complete() {
		return ""
	}
	return verifier.Worker
}

// checkWords are the words of the check in the browser, for its script: {0}, {1} …
// stand for values.
func checkWords() map[string]string {
	words := map[string]string{}
	for key, text := range english {
		if name, ok := strings.CutPrefix(key, "check.js."); ok {
			words[name] = text
		}
	}
	return words
}
