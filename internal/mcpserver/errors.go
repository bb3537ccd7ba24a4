package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/plaintext"
	"github.com/witan-adp/witan/internal/remote"
)

// next says what an agent can do about a refusal.
var next = map[adp.Code]string{
	adp.InvalidRequest:          "an argument is not as the daemon wants it",
	adp.InvalidEvent:            "the room does not take this; read_room tells how it stands",
	adp.TimestampOutOfWindow:    "the clock of the machine that this server runs on is wrong; nothing can be written until it is right",
	adp.NonceNotGreater:         "another program writes with the same key; call again, and give each program a key of its own",
	adp.RoomHeadMismatch:        "the room is busy: others were faster each time; read_history what came in, then call again",
	adp.Internal:                "the fault is not yours; call again in a while",
	adp.JoinRequestNotFound:     "make a request with join_room, without request_id",
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

// hints say what can be done about a host that gives no answer that can be used.
var hints = map[fetch.Kind]string{
	fetch.BadURL:         "give the url of a room as search_rooms returns it",
	fetch.Blocked:        "this server asks hosts at public addresses only; who runs it can allow others (witan mcp --allow-private-addresses)",
	fetch.Refused:        "nothing runs there at the moment",
	fetch.Unreachable:    "check the address",
	fetch.TLS:            "its certificate cannot be relied on",
	fetch.Timeout:        "it is slow or down; call again in a while",
	fetch.Slow:           "it is slow; call again in a while",
	fetch.TooLarge:       "it sends more than can be read",
	fetch.BadRedirect:    "it points to another address, which is not followed",
	fetch.BadContentType: "it does not answer as an ADP host does",
	fetch.Broken:         "it does not answer as an ADP host does",
	fetch.Canceled:       "the call was given up",
}

// own is an error in words of witan alone.
type own struct{ error }

func ownf(format string, args ...any) error { return own{fmt.Errorf(format, args...)} }

// explain makes an error that an agent can act upon, and keeps the words of a host apart: whatever is not known to quote nobody is
// taken to quote somebody.
func (t *tools) explain(tool string, err error) error {
	refused, isRefused := errors.AsType[*remote.Error](err)
	failed, isFailed := errors.AsType[*fetch.Error](err)
	waits, isWaiting := errors.AsType[remote.Unapproved](err)
	_, isOwn := errors.AsType[own](err)
	_, isArgument := errors.AsType[remote.ArgumentError](err)
	switch {
	case isRefused:
		return refusal(tool, refused)
	case isWaiting && waits.Status == "pending":
		return fmt.Errorf("the join request %s waits for the creator or a moderator of the room; call join_room with this request_id again later", plaintext.Line(waits.Request))
	case isWaiting:
		return fmt.Errorf("the join request %s is %s; make a new one with join_room, without request_id", plaintext.Line(waits.Request), waits.Status)
	case isOwn, isArgument:
		return errors.New(plaintext.Text(err.Error()))
	case isFailed:
		said := failed.URL + " gave no answer that can be used (" + strings.ReplaceAll(string(failed.Kind), "_", " ") + "): " + hints[failed.Kind]
		if at, err := remote.OriginOf(failed.URL); err == nil && at != t.o.Daemon {
			said += ". What the daemon holds of its rooms can be read without \"from\": \"host\""
		}
		return quoting(said, "The cause in full", err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the call took too long and was given up; ask for less, or try again in a while")
	}
	return quoting("what was served is not what it should be; nothing of it is shown, and it is not to be relied on", "The finding", err.Error())
}

// refusal is what a host says in an error of ADP §20.
func refusal(tool string, refused *remote.Error) error {
	if refused.Code == "" {
		return fmt.Errorf("%s answered with status %d and no coded error; is there a witan daemon or an ADP host?", refused.URL, refused.Status)
	}
	said := fmt.Sprintf("refused with code %s (status %d)", word(string(refused.Code)), refused.Status)
	advice := next[refused.Code]
	if tool == "leave_room" && refused.Code == adp.PermissionDenied {
		advice = "you are no member of the room, so that there is nothing to leave; or the host takes no writes of your key"
	}
	if advice != "" {
		said += ": " + advice
	}
	for _, name := range []string{"retry_after", "first_seq", "max_bytes"} {
		if n, ok := refused.Data.Get(name).Int(); ok {
			said += fmt.Sprintf("; %s = %d", name, n)
		}
	}
	return quoting(said, "What the host says about it", refused.Message)
}

// quoting is an error that has words of others behind words of witan.
func quoting(said, what, words string) error {
	quoted, err := encode(line(words, 500))
	if err != nil {
		return err
	}
	return errors.New(said + ".\n" + what + " follows. " + enclose(quoted))
}

// readable makes the SDK's refusal of arguments readable: what it says of the schema, and where the schema is to be found.
func readable(call mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		answer, err := call(ctx, method, req)
		r, ok := answer.(*mcp.CallToolResult)
		if err != nil || !ok || !r.IsError || len(r.Content) != 1 {
			return answer, err
		}
		said, ok := r.Content[0].(*mcp.TextContent)
		if !ok {
			return answer, err
		}
		if what, ok := strings.CutPrefix(said.Text, `validating "arguments": `); ok {
			said.Text = "the arguments do not fit this tool: " + plaintext.Short(strings.ReplaceAll(strings.TrimPrefix(what, "validating root: "), "validating ", ""), 500) +
				". Its input schema, in tools/list, says what it takes; nothing was done."
		}
		return answer, err
	}
}
