package daemon

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/config"
)

// tool calls a tool of a daemon over /mcp and answers with its facts and with what is untrusted.
func (d *running) tool(s *mcp.ClientSession, name string, args obj) (facts obj, untrusted any) {
	d.t.Helper()
	r, err := s.CallTool(d.t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		d.t.Fatalf("%s: %v", name, err)
	}
	if r.IsError {
		d.t.Fatalf("%s %v: %s", name, args, r.Content[0].(*mcp.TextContent).Text)
	}
	raw, err := json.Marshal(r.StructuredContent)
	if err != nil {
		d.t.Fatal(err)
	}
	var out struct {
		Facts     obj
		Untrusted struct{ Content any }
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		d.t.Fatal(err)
	}
	return out.Facts, out.Untrusted.Content
}

// An agent finds a room of another host at a mirror, reads it, and has it verified and proven, by the SDK's own client.
func TestAgentReadsOverMCP(t *testing.T) {
	a := start(t, setup{})
	b := start(t, setup{mirrors: []string{a.origin}, peers: a.info.Peers[:1]})
	creator, speaker := newAgent(t), newAgent(t)
	id := a.create(creator, nil)
	a.act(speaker, id, "room.join", map[string]any{"role": "speaker"})
	a.act(speaker, id, "message.create", text("first"))
	a.act(creator, id, "room.close", map[string]any{})
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: b.origin + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	until(t, "the room to be indexed, attested", func() bool { // by HTTP: /mcp bounds how often it is asked
		var rooms []obj
		b.call("GET", "/v1/index/rooms?attested=attested", nil, &rooms)
		return len(rooms) == 1
	})
	found, _ := b.tool(s, "search_rooms", obj{"query": "quorum", "status": "ended", "host": a.origin})
	at := found["rooms"].([]any)[0].(obj)["url"].(string)
	if at != a.origin+"/v1/rooms/"+id {
		t.Fatalf("found %s", at)
	}
	facts, said := b.tool(s, "read_room", obj{"room": at, "members": true})
	if facts["verdict"] != "verified" || facts["attested"] != "attested" || facts["read_from"] != b.origin+"/m/"+authority(a.origin)+"/v1/rooms/"+id ||
		len(facts["members"].([]any)) != 2 || said.(obj)["topic"] != "Quorum of mirrors" {
		t.Errorf("read_room: %v %v", facts, said)
	}
	facts, said = b.tool(s, "read_history", obj{"room": at})
	if len(facts["records"].([]any)) != 4 || facts["more"] != false || said.([]any)[2].(obj)["content"] != "first" {
		t.Errorf("read_history: %v %v", facts, said)
	}
	until(t, "the message to be searchable", func() bool {
		var found []obj
		b.call("GET", "/v1/index/events?q=first", nil, &found)
		return len(found) == 1
	})
	facts, said = b.tool(s, "search_messages", obj{"query": "first", "room": at})
	if found := facts["messages"].([]any); len(found) != 1 || found[0].(obj)["room"] != at || found[0].(obj)["seq"] != 3.0 || said.([]any)[0].(obj)["snippet"] != "first" {
		t.Errorf("search_messages: %v %v", facts, said)
	}
	if facts, _ = b.tool(s, "verify_room", obj{"room": at}); facts["verdict"] != "verified" || facts["manifest"] != "matches" {
		t.Errorf("verify_room: %v", facts)
	}
	if facts, _ = b.tool(s, "get_proof", obj{"room": at, "seq": 3}); facts["holds"] != true || facts["size"] != 4.0 || facts["checkpoint"] != nil {
		t.Errorf("get_proof at the mirror: %v", facts)
	}
	facts, _ = b.tool(s, "get_attestations", obj{"room": at})
	signed := map[string]int{}
	for _, e := range facts["signed"].([]any) {
		if e := e.(obj); e["signature"] == "good" && e["last_seq"] == 4.0 {
			signed[e["kind"].(string)]++
		}
	}
	if signed["statement"] != 1 || signed["attestation"] != 1 || facts["attested"] != "attested" {
		t.Errorf("get_attestations: %v", facts)
	}
	if facts, _ = b.tool(s, "list_hosts", obj{}); facts["agent"] != b.info.AgentID || facts["hosts"].([]any)[0].(obj)["origin"] != a.origin {
		t.Errorf("list_hosts: %v", facts)
	}

	own, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: a.origin + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	until(t, "a checkpoint over the whole room", func() bool {
		_, _, signed := a.call("GET", "/v1/rooms/"+id+"/checkpoint", nil, nil)
		lines := strings.SplitN(string(signed), "\n", 3)
		return len(lines) == 3 && lines[1] == "4"
	})
	facts, _ = a.tool(own, "get_proof", obj{"room": id, "seq": 4})
	if point, ok := facts["checkpoint"].(obj); !ok || facts["holds"] != true || !strings.HasPrefix(point["signed_by"].(string), authority(a.origin)+"/witan/rooms/"+id) {
		t.Errorf("get_proof at the host: %v", facts)
	}
	r, err := own.CallTool(t.Context(), &mcp.CallToolParams{Name: "read_room", Arguments: obj{"room": b.origin + "/v1/rooms/" + id}})
	if err != nil || !r.IsError {
		t.Errorf("a room of a host that is not followed: %v %v", r, err)
	}
}

func TestMCPCanBeOff(t *testing.T) {
	d := start(t, setup{change: func(c *config.Config) { c.MCP.Enabled, c.P2P.Enabled = false, false }})
	if status, _, _ := d.call("POST", "/mcp", []byte("{}"), nil); status != 404 {
		t.Errorf("answered %d", status)
	}
}
