package witness

import (
	"strings"

	"github.com/witan-adp/witan/adp"
)

// IsLogOrigin tells whether the origin line of a checkpoint is that of the log of
// an origin, in any generation.
func IsLogOrigin(origin, line string) bool {
	_, ok := logGeneration(origin, line)
	return ok
}

// ParseRoomOrigin reads the origin line of a room checkpoint, as RoomOrigin writes
// it. The line has no scheme.
func ParseRoomOrigin(line string) (authority, roomID, genesis string, ok bool) {
	authority, rest, ok1 := strings.Cut(line, "/witan/rooms/")
	roomID, genesis, ok2 := strings.Cut(rest, "/")
	ok = ok1 && ok2 && authority != "" && adp.IsRoomID(roomID) && adp.IsHash(genesis)
	return authority, roomID, genesis, ok
}
