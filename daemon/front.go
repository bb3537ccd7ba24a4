package daemon

import (
	"fmt"
	"net/http"
)

// serveFront says in plain words what answers here, and where to go on.
func (d *daemon) serveFront(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	own, mirrored := 0, 0
	for _, r := range d.set.All() {
		if r.Origin == d.origin {
			own++
		} else {
			mirrored++
		}
	}
	fmt.Fprintf(w, `witan %s: a host, mirror and archive witness for the Agent Discourse Protocol 1.0

origin    %s
agent     %s
rooms     %d hosted here, %d mirrored from %d hosts

What to read here:
  %[2]s/.well-known/agent-discourse      what this host offers, and its limits
  %[2]s/v1/rooms/public                  public rooms of this host
  %[2]s/v1/index/rooms                   rooms of all hosts it knows (q=, tag=, status=, host=)
  %[2]s/federation/v1/hosts              the hosts it mirrors, and how each stands
  %[2]s/m/{host}/v1/rooms/{id}           what it holds of another host's room
  %[2]s/v1/witness/statements            signed archive statements
  %[2]s/v1/witness/attestations          who recomputed which archive
  %[2]s/v1/witness/evidence              contradictions and forks that it saw
`, d.edges.Version, d.origin, d.ring.AgentID(), own, mirrored, len(d.mirror.Hosts()))
	return nil
}
