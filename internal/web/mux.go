package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/witan-adp/witan/adp"
)

// Handler answers a request, or returns the error to answer with.
type Handler = func(http.ResponseWriter, *http.Request) error

// Mux routes by path and method and answers everything else as a coded error:
// 404 not_found for an unknown path, 405 invalid_request with Allow for a
// method that the path does not have. It never redirects and never cleans a
// path: one with an empty, "." or ".." segment is unknown.
//
// Patterns are those of net/http without host: "/v1/rooms/{room_id}/events",
// "{name...}" as the last segment, "{$}" at the end. A pattern matches the whole
// path, so "/a/" is only "/a/". A literal segment wins over a wildcard. Segments
// are percent-decoded one by one; a value read with PathValue may hold "/".
type Mux struct {
	root node
}

type node struct {
	literal map[string]*node
	one     *node            // {name}
	routes  map[string]route // by method, of the pattern that ends here
	rest    map[string]route // by method, of a {name...} that starts here
}

type route struct {
	pattern string
	names   []string
	handle  Handler
}

// NewMux makes a Mux without routes.
func NewMux() *Mux { return &Mux{} }

// Handle adds a route, before the mux serves. GET also answers HEAD. It panics
// on a malformed pattern and on a second route of the same method and path.
func (m *Mux) Handle(method, pattern string, h func(http.ResponseWriter, *http.Request) error) {
	path, ok := strings.CutPrefix(pattern, "/")
	if !ok || method == "" || h == nil {
		panic(fmt.Sprintf("web: route %q %q: want a method, a pattern that starts with / and a handler", method, pattern))
	}
	added := route{pattern: pattern, handle: h}
	n := &m.root
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		name, isName := strings.CutPrefix(segment, "{")
		switch {
		case segment == "{$}" && last:
			n = n.child("")
		case !isName && segment == "" && !last, !isName && strings.ContainsAny(segment, "{}"), isName && !strings.HasSuffix(name, "}"):
			panic(fmt.Sprintf("web: pattern %q: bad segment %q", pattern, segment))
		case !isName:
			n = n.child(segment)
		default:
			name, isRest := strings.CutSuffix(strings.TrimSuffix(name, "}"), "...")
			if name == "" || strings.ContainsAny(name, "{}$.") || slices.Contains(added.names, name) || isRest && !last {
				panic(fmt.Sprintf("web: pattern %q: bad segment %q", pattern, segment))
			}
			added.names = append(added.names, name)
			if isRest {
				n.rest = add(n.rest, method, added)
				return
			}
			if n.one == nil {
				n.one = &node{}
			}
			n = n.one
		}
	}
	n.routes = add(n.routes, method, added)
}

func (n *node) child(segment string) *node {
	if n.literal == nil {
		n.literal = make(map[string]*node)
	}
	if n.literal[segment] == nil {
		n.literal[segment] = &node{}
	}
	return n.literal[segment]
}

func add(routes map[string]route, method string, added route) map[string]route {
	if routes == nil {
		routes = make(map[string]route)
	}
	if old, taken := routes[method]; taken {
		panic(fmt.Sprintf("web: %s %s is already routed as %s", method, added.pattern, old.pattern))
	}
	routes[method] = added
	return routes
}

// ServeHTTP implements http.Handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if recorderOf(w) == nil { // no guard in front: errors still need to know whether the answer has begun
		w = &recorder{ResponseWriter: w}
	}
	s := search{method: r.Method}
	if segments, ok := split(r.URL); ok {
		s.find(&m.root, segments, nil)
	}
	if s.found.handle == nil {
		m.refuse(w, r, &s)
		return
	}
	for i, name := range s.found.names {
		r.SetPathValue(name, s.values[i])
	}
	r.Pattern = s.found.pattern
	visitOf(r).route = s.found.pattern
	if err := s.found.handle(w, r); err != nil {
		WriteError(w, r, err)
	}
}

func (m *Mux) refuse(w http.ResponseWriter, r *http.Request, s *search) {
	if len(s.allow) == 0 {
		WriteError(w, r, adp.Errorf(adp.NotFound, "There is nothing at this path; /.well-known/agent-discourse names the endpoints."))
		return
	}
	slices.Sort(s.allow)
	allow := strings.Join(slices.Compact(s.allow), ", ")
	visitOf(r).route = s.refused
	w.Header().Set("Allow", allow)
	writeError(w, r, adp.Errorf(adp.InvalidRequest, "This path does not take %s; it takes %s.", r.Method, allow), http.StatusMethodNotAllowed)
}

// split decodes the segments of a path; ok is false for one that no route may have.
func split(u *url.URL) (segments []string, ok bool) {
	path, ok := strings.CutPrefix(u.EscapedPath(), "/")
	if !ok {
		return nil, false
	}
	segments = strings.Split(path, "/")
	for i, segment := range segments {
		if strings.Contains(segment, "%") {
			decoded, err := url.PathUnescape(segment)
			if err != nil {
				return nil, false
			}
			segments[i], segment = decoded, decoded
		}
		if segment == "." || segment == ".." || segment == "" && i < len(segments)-1 {
			return nil, false
		}
	}
	return segments, true
}

// search walks the tree, the more specific branch first, until a pattern has
// the method; on the way it collects the methods of all that match the path.
type search struct {
	method  string
	found   route
	values  []string
	allow   []string
	refused string // the most specific pattern that lacks the method
}

func (s *search) find(n *node, segments, values []string) bool {
	if len(segments) == 0 {
		return s.take(n.routes, values)
	}
	head, tail := segments[0], segments[1:]
	if child := n.literal[head]; child != nil && s.find(child, tail, values) {
		return true
	}
	if n.one != nil && head != "" && s.find(n.one, tail, append(slices.Clip(values), head)) {
		return true
	}
	return n.rest != nil && s.take(n.rest, append(slices.Clip(values), strings.Join(segments, "/")))
}

func (s *search) take(routes map[string]route, values []string) bool {
	found, ok := routes[s.method]
	if !ok && s.method == http.MethodHead {
		found, ok = routes[http.MethodGet]
	}
	if ok {
		s.found, s.values = found, values
		return true
	}
	for method, r := range routes {
		s.allow = append(s.allow, method)
		if method == http.MethodGet {
			s.allow = append(s.allow, http.MethodHead)
		}
		if s.refused == "" {
			s.refused = r.pattern
		}
	}
	return false
}

// Route is one way to ask a Mux.
type Route struct{ Method, Pattern string }

// Routes lists what was added with Handle, ordered by pattern and method. GET also answers HEAD.
func (m *Mux) Routes() []Route {
	var all []Route
	var walk func(*node)
	walk = func(n *node) {
		for _, routes := range []map[string]route{n.routes, n.rest} {
			for method, r := range routes {
				all = append(all, Route{method, r.pattern})
			}
		}
		for _, child := range n.literal {
			walk(child)
		}
		if n.one != nil {
			walk(n.one)
		}
	}
	walk(&m.root)
	slices.SortFunc(all, func(a, b Route) int {
		return cmp.Or(strings.Compare(a.Pattern, b.Pattern), strings.Compare(a.Method, b.Method))
	})
	return all
}
