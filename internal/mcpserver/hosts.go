package mcpserver

import (
	"context"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/internal/fetch"
)

func (t *tools) addHosts(s *mcp.Server) {
	add(t, s, &mcp.Tool{Name: "list_hosts", Annotations: reads("List the hosts that the daemon follows"), InputSchema: object(props{"after": str(300, "go on behind this host: next_after of the answer before")}),
		Description: "List the hosts whose rooms the daemon mirrors and verifies, with the state of each, and the daemon itself. A long list goes on at next_after."}, t.listHosts)
}

type hostFacts struct {
	Origin      string `json:"origin"`
	State       string `json:"state" jsonschema:"following, backing-off, blocked, gone, rebound, paused or removed"`
	Since       string `json:"since,omitempty"`
	Rooms       int64  `json:"rooms"`
	Records     int64  `json:"records"`
	Equivocated bool   `json:"equivocated,omitempty" jsonschema:"a key of it is proven to have signed two stories"`
}

type hostsFacts struct {
	Daemon string      `json:"daemon"`
	Agent  string      `json:"agent"`
	Hosts  []hostFacts `json:"hosts"`
	Next   string      `json:"next_after,omitempty" jsonschema:"there are more hosts: give it as after"`
}

type hostsIn struct {
	After string `json:"after"`
}

type hostText struct {
	Origin string `json:"origin"`
	Reason string `json:"reason"`
}

func (t *tools) listHosts(ctx context.Context, in hostsIn) (f hostsFacts, u []hostText, err error) {
	c := t.reader(t.o.Near)
	self, _, err := c.Get(ctx, fetch.Request{URL: t.o.Daemon + "/federation/v1/self"})
	if err != nil {
		return f, nil, err
	}
	list, err := c.List(ctx, t.o.Daemon+"/federation/v1/hosts", 0)
	if err != nil {
		return f, nil, err
	}
	f, u = hostsFacts{Daemon: t.o.Daemon, Agent: agent(self.Get("agent_id").Text()), Hosts: []hostFacts{}}, []hostText{}
	slices.SortFunc(list, func(a, b value) int { return strings.Compare(a.Get("origin").Text(), b.Get("origin").Text()) })
	for _, v := range list {
		at := origin(v.Get("origin").Text())
		if v.Get("origin").Text() <= in.After {
			continue
		}
		if len(f.Hosts) == mostHosts {
			f.Next = f.Hosts[mostHosts-1].Origin
			break
		}
		equivocated, _ := v.Get("equivocated").Bool()
		f.Hosts = append(f.Hosts, hostFacts{at, word(v.Get("state").Text()), clock(number(v.Get("since"))), number(v.Get("rooms")), number(v.Get("records")), equivocated})
		if reason := v.Get("reason").Text(); reason != "" {
			u = append(u, hostText{at, line(reason, 300)})
		}
	}
	return f, u, nil
}
