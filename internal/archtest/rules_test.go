package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const module = "github.com/witan-adp/witan"

// The protocol as a library, and the packages that roles stand on.
var (
	protocol = []string{"adp", "adp/room", "adp/types"}
	ground   = slices.Concat([]string{"internal/replica", "internal/p2p", "internal/fetch", "internal/keys", "internal/web", "internal/store"}, protocol)
	roles    = []string{"host", "mirror", "index", "index/messages", "index/text", "witness", "witness/cosign", "webhook", "feed"}
)

// arrows says what of ours each package may import: main → internal/cli →
// daemon → roles → ground. No role stands in the list of another one: a role
// that needs something declares an interface, and daemon hands it in.
var arrows = map[string][]string{
	".": {"internal/cli"},
	"internal/cli": slices.Concat([]string{"daemon", "config", "witness", "internal/cosignature", "internal/fetch", "internal/inspect", "internal/keys", "internal/plaintext", "internal/policy", "internal/proofbundle",
		"internal/remote", "internal/tilelog", "internal/mcpserver"}, protocol),
	"daemon": slices.Concat([]string{"config", "internal/tilelog", "internal/cosignature", "internal/mcpserver", "internal/page", "internal/openapi"}, roles, ground),
	"config": {"adp", "internal/cosignature", "internal/policy"}, // to judge the Agent IDs, the verifier keys and the policy in it

	"host":           ground,
	"mirror":         ground,
	"index":          {"index/text", "internal/web", "adp", "adp/room"}, // it is told what it lists
	"index/text":     {},
	"index/messages": {"index/text", "internal/web", "adp", "adp/room"},
	"witness":        slices.Concat([]string{"internal/policy", "internal/tilelog", "internal/replica", "internal/web", "internal/store"}, protocol), // it has no network

	"feed":    {"index", "index/text", "internal/plaintext", "internal/store", "internal/web", "adp"},
	"webhook": slices.Concat([]string{"internal/replica", "internal/fetch", "internal/web", "internal/store"}, protocol),

	"internal/tilelog":            {"internal/store", "adp"},
	"internal/cosignature":        {"adp"},
	"internal/policy":             {"adp"},
	"internal/proofbundle":        {"adp"},
	"witness/cosign":              {"internal/cosignature", "internal/fetch", "internal/tilelog", "internal/web", "internal/store", "adp"},
	"internal/inspect":            protocol, // it runs in browsers, too
	"internal/plaintext":          {},
	"internal/remote":             slices.Concat([]string{"internal/fetch", "internal/inspect", "internal/plaintext"}, protocol),
	"internal/page":               slices.Concat([]string{"internal/page/verifier", "internal/plaintext", "internal/web"}, protocol), // it is told what it shows
	"internal/page/verifier":      {"internal/web", "internal/inspect", "adp"},                                                       // the latter in its test: both must find the same
	"internal/page/verifier/wasm": slices.Concat([]string{"internal/inspect"}, protocol),                                             // it runs in browsers
	"internal/replica":            slices.Concat([]string{"internal/web", "internal/store"}, protocol),
	"internal/keys":               {"internal/store", "adp"},
	"internal/web":                {"adp"},
	"internal/fetch":              {"adp"},
	"internal/p2p":                {"adp"},
	"internal/store":              {}, // it knows keys and values, not what they mean

	"internal/openapi":   {"internal/web", "adp"},
	"internal/mcpserver": slices.Concat([]string{"internal/fetch", "internal/inspect", "internal/keys", "internal/plaintext", "internal/remote", "internal/tilelog", "internal/web"}, protocol),

	"adp/room":  {"adp", "adp/types"},
	"adp/types": {"adp"},
	"adp":       {},

	"internal/browsertest":         slices.Concat([]string{"config", "daemon", "internal/page", "internal/page/verifier", "internal/store"}, protocol),
	"internal/archtest":            {},
	"internal/childtest":           {},
	"internal/store/storetest":     {"internal/store"},
	"internal/inspect/inspecttest": protocol,
	"witness/cosign/cosigntest":    {"internal/cosignature"},
}

// owners are modules that one package keeps to itself, tests included, so that
// another engine can stand there one day.
var owners = []struct{ prefix, owner string }{
	{"github.com/dgraph-io/badger", "internal/store"},
	{"github.com/libp2p/", "internal/p2p"},
	{"github.com/blevesearch/", "index/text"},
}

// outside are packages that the protocol library may not use: it has no clock
// and no I/O (tests may).
var outside = []string{"time", "os", "net", "net/http", "os/exec", "syscall", "log", "log/slog"}

// dialers are names that open connections. Only internal/fetch may use them,
// since it alone has the guard against private addresses; the operator's
// commands speak to the admin socket of their own daemon.
var dialers = map[string][]string{
	"net/http":   {"Client", "DefaultClient", "Get", "Head", "Post", "PostForm", "Transport", "DefaultTransport"},
	"net":        {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialIP", "DialUnix", "Dialer"},
	"crypto/tls": {"Dial", "DialWithDialer", "Dialer"},
}

var mayDial = []string{"internal/fetch/", "internal/cli/operator.go"}

// sourceFile is one Go file as far as the rules look at it.
type sourceFile struct {
	path    string // from the root of the module
	pkg     string // folder, "." for the root
	test    bool
	imports []string
	uses    []use
}

// use is a name of an imported package.
type use struct{ path, name string }

// check says what in the files is against the rules, one line each.
func check(files []sourceFile) []string {
	var wrong []string
	add := func(f sourceFile, format string, args ...any) {
		wrong = append(wrong, f.path+": "+fmt.Sprintf(format, args...))
	}
	there := map[string]bool{}
	for _, f := range files {
		allowed, known := arrows[f.pkg]
		if !known {
			add(f, "package %s has no row in the table of arrows: add one that says what it may import", f.pkg)
		}
		there[f.pkg] = true
		for _, path := range f.imports {
			if to, ours := own(path); ours && to != f.pkg && known && !slices.Contains(allowed, to) && !(f.test && forTests(to)) {
				add(f, "%s may not import %s", f.pkg, to)
			}
			for _, o := range owners {
				if strings.HasPrefix(path+"/", o.prefix) && f.pkg != o.owner {
					add(f, "only %s may import %s", o.owner, path)
				}
			}
			if !f.test && slices.Contains(protocol, f.pkg) && slices.Contains(outside, path) {
				add(f, "%s has no clock and no I/O: it may not import %s", f.pkg, path)
			}
		}
		if f.test || forTests(f.pkg) || slices.ContainsFunc(mayDial, func(p string) bool { return strings.HasPrefix(f.path, p) }) {
			continue
		}
		for _, u := range f.uses {
			if slices.Contains(dialers[u.path], u.name) {
				add(f, "%s.%s opens connections past the guard of internal/fetch", u.path, u.name)
			}
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(arrows)) {
		if !there[pkg] {
			wrong = append(wrong, "the table of arrows has a row for "+pkg+", which does not exist")
		}
	}
	return wrong
}

// own cuts the module off an import path.
func own(path string) (pkg string, ours bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// forTests tells whether a package is there for tests.
func forTests(pkg string) bool { return strings.HasSuffix(pkg, "test") && pkg != "internal/archtest" }
