package mcpserver

import (
	"errors"
	"fmt"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/plaintext"
	"github.com/witan-adp/witan/internal/remote"
)

// next says what an agent can do about a refusal.
var next = map[adp.Code]string{
	adp.RoomNotFound:            "check the url; search_rooms lists the rooms that the daemon knows. A room of a host that the daemon does not follow can be read from the host itself with \"from\": \"host\", where this server allows it",
	adp.NotFound:                "check the url; list_hosts lists the hosts that the daemon follows",
	adp.InvalidToken:            "this room is not public; it wants a server with a key (witan mcp --key FILE)",
	adp.MembershipRequired:      "join the room first (join_room)",
	adp.PermissionDenied:        "join the room first (join_room); if you have joined, your role does not allow it, or the host takes no writes of your key",
	adp.MemberBanned:            "you were banned from this room; nothing to do here",
	adp.ApprovalRequired:        "the room wants a join request; call join_room, and again with request_id once it is approved",
	adp.RoleNotAllowed:          "join in another role, such as observer",
	adp.RoomNotActive:           "the room has not started, or was cancelled; read_room tells its times",
	adp.RoomEnded:               "the room is over; it can still be read and verified",
	adp.MaxSpeakersExceeded:     "the room has all the speakers it takes; join as observer",
	adp.RateLimited:             "wait a while, then try once more",
	adp.PayloadTooLarge:         "send less",
	adp.PayloadSchemaViolation:  "the payload does not fit its type; read_room shows the types of the room",
	adp.TypeNotDefined:          "the room has no such type; read_room shows those that it has",
	adp.Gone:                    "the daemon has let go of these old records; begin behind first_seq, or read from the host itself",
	adp.Withheld:                "an operator keeps this from being read",
	adp.JoinRequestNotApproved:  "the request is not approved (yet)",
	adp.JoinRequestExpired:      "make a new request with join_room",
	adp.JoinRequestRoleMismatch: "join in the role that was approved",
}

// explain makes an error that an agent can act upon, and keeps the words of a host apart.
func explain(err error) error {
	refused, ok := errors.AsType[*remote.Error](err)
	if !ok {
		return errors.New(plaintext.Text(err.Error()))
	}
	var b strings.Builder
	if refused.Code == "" {
		fmt.Fprintf(&b, "%s answered with status %d and no coded error; is there a witan daemon or an ADP host?", refused.URL, refused.Status)
		return errors.New(b.String())
	}
	code := word(string(refused.Code))
	fmt.Fprintf(&b, "refused with code %s (status %d)", code, refused.Status)
	if advice := next[refused.Code]; advice != "" {
		b.WriteString(": " + advice)
	}
	for _, name := range []string{"retry_after", "first_seq", "max_bytes"} {
		if n, ok := refused.Data.Get(name).Int(); ok {
			fmt.Fprintf(&b, "; %s = %d", name, n)
		}
	}
	said, encodeErr := encode(line(refused.Message, 500))
	if encodeErr != nil {
		return encodeErr
	}
	return errors.New(b.String() + ".\nWhat the host says about it follows. " + enclose(said))
}
