package mcpserver

import "maps"

// The input schemas are closed: a member that a tool does not know is refused with the names of those that it does.

type props map[string]any

const (
	fromDaemon = "daemon"
	fromHost   = "host"
)

func object(p props, required ...string) map[string]any {
	if required == nil {
		required = []string{}
	}
	return map[string]any{"type": "object", "properties": p, "required": required, "additionalProperties": false}
}

func str(most int, description string) props {
	return props{"type": "string", "minLength": 1, "maxLength": most, "description": description}
}

func oneOf(description string, words ...string) props {
	return props{"type": "string", "enum": words, "description": description}
}

func integer(least, most, absent int, description string) props {
	return props{"type": "integer", "minimum": least, "maximum": most, "default": absent, "description": description}
}

func flag(description string) props {
	return props{"type": "boolean", "default": false, "description": description}
}

func pattern(p, description string) props {
	return props{"type": "string", "pattern": p, "description": description}
}

const (
	hashPattern  = "^[A-Za-z0-9_-]{43}$"
	agentPattern = "^did:agent:[A-Za-z0-9_-]{43}$"
)

// room is the schema of a tool that is about one room.
func (t *tools) room(more props, required ...string) map[string]any {
	p := props{"room": str(2048, "the url of the room, as search_rooms returns it, or the bare ID of a room that the daemon itself hosts")}
	if t.o.Far != nil {
		p["from"] = props{"type": "string", "enum": []string{fromDaemon, fromHost}, "default": fromDaemon,
			"description": "whom to ask: the daemon, for its verified copy, or the host of the room itself"}
	}
	maps.Copy(p, more)
	return object(p, append([]string{"room"}, required...)...)
}

func searchSchema() map[string]any {
	return object(props{
		"query":    str(1000, "words that must all occur in the topic, agenda, guidance or tags"),
		"host":     str(300, "only rooms of this host, such as rooms.example"),
		"status":   oneOf("only rooms in this state", "scheduled", "active", "ended", "cancelled"),
		"tag":      str(200, "only rooms with this tag"),
		"language": str(40, "only rooms in this language; en finds en-GB, too"),
		"type":     str(200, "only rooms that have this event type"),
		"creator":  pattern(agentPattern, "only rooms that this agent created"),
		"verdict":  oneOf("only rooms with this verdict; verified means that every record is authentic, linked and was allowed", "verified", "violations", "broken", "forked", "archive-mismatch", "equivocated", "unverified"),
		"attested": oneOf("only rooms in this state of attestation by witnesses", "unattested", "partial", "attested", "equivocated"),
		"joinable": props{"type": "boolean", "description": "true: only rooms that are public, not over and not full; false: only the others"},
		"sort":     oneOf("the order; the default is activity; relevance wants a query", "activity", "start", "relevance"),
		"limit":    integer(1, 50, 10, "how many rooms at most"),
		"cursor":   str(2000, "next_cursor of the page before; give the same filters with it"),
	})
}
