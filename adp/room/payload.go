package room

import (
	"strings"

	"github.com/witan-adp/witan/adp"
)

// A shape judges one payload by itself (wire-facts §2).
type shape func(adp.Value) error

var shapes = map[string]shape{
	Create: object(need("topic", nonBlank), need("visibility", oneOf(Public, Restricted, Private)), need("start_time", integer(0)), need("end_time", integer(0)),
		may("agenda", text), may("guidance", text), may("tags", list(filled)), may("language", text), may("policy", policyShape),
		may("types", elements(anyObject)), may("extra", anyObject)),
	Update: func(v adp.Value) error {
		if v.Len() == 0 {
			return adp.Errorf(adp.InvalidEvent, "room.update must change something")
		}
		return updateShape(v)
	},
	Join: func(v adp.Value) error {
		if v.Get("request_id").Exists() && v.Get("perspective").Exists() {
			return adp.Errorf(adp.InvalidEvent, "a room.join with request_id takes the perspective of the request; leave perspective out")
		}
		return joinShape(v)
	},
	Review: func(v adp.Value) error {
		if v.Get("decision").Is("approve") && !v.Get("role").Exists() {
			return adp.Errorf(adp.InvalidEvent, "an approving review must say the role")
		}
		return reviewShape(v)
	},
	Leave:      object(may("reason", text), may("references", list(hash)), may("extra", anyObject)),
	Close:      object(may("reason", text), may("references", list(hash)), may("extra", anyObject)),
	Cancel:     object(may("reason", text), may("references", list(hash)), may("extra", anyObject)),
	RoleUpdate: object(need("member", agent), need("role", role), may("reason", text), may("extra", anyObject)),
	Remove:     object(need("member", agent), may("ban", boolean), may("reason", text), may("references", list(hash)), may("extra", anyObject)),
	Message:    object(need("content_type", filled), need("content", textOrObject), may("references", list(hash)), may("extra", anyObject)),
}

var (
	updateShape = object(may("topic", nonBlank), may("agenda", text), may("guidance", text), may("tags", list(filled)), may("language", text),
		may("policy", policyShape), may("start_time", integer(0)), may("end_time", integer(0)))
	joinShape    = object(need("role", role), may("request_id", filled), may("perspective", text))
	reviewShape  = object(need("request", requestShape), need("decision", oneOf("approve", "reject")), may("role", role), may("reason", text), may("extra", anyObject))
	policyShape  = object(may("moderator_agent_ids", list(agent)), may("max_speakers", integer(1)), may("observer_allowed", boolean), may("extra", anyObject))
	requestShape = object(need("id", filled), need("room_id", filled), need("applicant", agent), need("role", role), need("created_at", integer(0)),
		need("expires_at", integer(0)), may("perspective", text), may("reason", text), may("extra", anyObject))
	joinRequestBody = object(need("role", role), may("perspective", text), may("reason", text), may("extra", anyObject))
	role            = oneOf("moderator", "speaker", "observer")
)

// CheckJoinRequest judges the body of POST …/join-requests (ADP §11).
func CheckJoinRequest(body adp.Value) error {
	if err := joinRequestBody(body); err != nil {
		return adp.Errorf(adp.InvalidRequest, "the join request is not acceptable: %s", message(err))
	}
	return nil
}

func message(err error) string {
	if e, ok := err.(*adp.Error); ok {
		return e.Message
	}
	return err.Error()
}

type member struct {
	name     string
	required bool
	check    func(adp.Value) string // what it should be, or "" when it is
}

func need(name string, check any) member { return member{name, true, asCheck(check)} }
func may(name string, check any) member  { return member{name, false, asCheck(check)} }

// asCheck lets a nested object stand where a plain check does.
func asCheck(check any) func(adp.Value) string {
	switch c := check.(type) {
	case shape:
		return func(v adp.Value) string {
			if err := c(v); err != nil {
				return "acceptable: " + message(err)
			}
			return ""
		}
	case func(adp.Value) string:
		return c
	}
	panic("room: not a check")
}

// object is a closed object with these members.
func object(members ...member) shape {
	return func(v adp.Value) error {
		if v.Kind() != adp.Object {
			return adp.Errorf(adp.InvalidEvent, "an object should be here, not %s", v.Kind())
		}
	next:
		for name := range v.Members() {
			for _, m := range members {
				if m.name == name {
					continue next
				}
			}
			return adp.Errorf(adp.InvalidEvent, "the member %.60q has no place here; free data goes into extra", name)
		}
		for _, m := range members {
			x := v.Get(m.name)
			if !x.Exists() {
				if m.required {
					return adp.Errorf(adp.InvalidEvent, "%s is missing", m.name)
				}
				continue
			}
			if want := m.check(x); want != "" {
				return adp.Errorf(adp.InvalidEvent, "%s must be %s", m.name, want)
			}
		}
		return nil
	}
}

func when(ok bool, want string) string {
	if ok {
		return ""
	}
	return want
}

func text(v adp.Value) string      { return when(v.Kind() == adp.String, "a string") }
func boolean(v adp.Value) string   { return when(v.Kind() == adp.Bool, "true or false") }
func anyObject(v adp.Value) string { return when(v.Kind() == adp.Object, "an object") }
func filled(v adp.Value) string {
	return when(v.Kind() == adp.String && !v.Is(""), "a non-empty string")
}
func nonBlank(v adp.Value) string {
	return when(v.Kind() == adp.String && strings.TrimSpace(v.Text()) != "", "a string that is not blank")
}
func agent(v adp.Value) string { return when(adp.IsAgentID(v.Text()), "an Agent ID") }
func hash(v adp.Value) string  { return when(adp.IsHash(v.Text()), "an event hash") }
func textOrObject(v adp.Value) string {
	return when(v.Kind() == adp.String || v.Kind() == adp.Object, "a string or an object")
}

func integer(least int64) func(adp.Value) string {
	return func(v adp.Value) string {
		i, ok := v.Int()
		if least > 0 {
			return when(ok && i >= least, "an integer, 1 or greater")
		}
		return when(ok && i >= least, "an integer, not negative")
	}
}

func oneOf(words ...string) func(adp.Value) string {
	return func(v adp.Value) string {
		for _, w := range words {
			if v.Is(w) {
				return ""
			}
		}
		return "one of " + strings.Join(words, ", ")
	}
}

// list is an array of unique strings of one kind.
func list(check func(adp.Value) string) func(adp.Value) string {
	return func(v adp.Value) string {
		if want := elements(check)(v); want != "" {
			return want
		}
		return when(!repeats(v), "without repeats")
	}
}

func elements(check func(adp.Value) string) func(adp.Value) string {
	return func(v adp.Value) string {
		if v.Kind() != adp.Array {
			return "an array"
		}
		for e := range v.Elements() {
			if want := check(e); want != "" {
				return "an array whose every element is " + want
			}
		}
		return ""
	}
}

// repeats tells whether an array of strings holds one twice.
func repeats(v adp.Value) bool {
	seen := make(map[string]struct{}, v.Len())
	for e := range v.Elements() {
		t := e.Text()
		if _, dup := seen[t]; dup {
			return true
		}
		seen[t] = struct{}{}
	}
	return false
}
