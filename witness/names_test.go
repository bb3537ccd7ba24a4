package witness

import (
	"strings"
	"testing"

	"github.com/witan-adp/witan/adp"
)

func TestOriginLines(t *testing.T) {
	s := Subject{"https://a.example:8443", roomX, adp.Encode(make([]byte, 32))}
	line := RoomOrigin(s)
	if a, id, g, ok := ParseRoomOrigin(line); !ok || a != "a.example:8443" || id != s.RoomID || g != s.Genesis {
		t.Error(a, id, g, ok)
	}
	for _, bad := range []string{"", LogOrigin(s.Origin, 1), "/witan/rooms/" + roomX + "/" + s.Genesis, line + "/x", strings.TrimSuffix(line, s.Genesis), strings.Replace(line, roomX, "..", 1)} {
		if _, _, _, ok := ParseRoomOrigin(bad); ok {
			t.Errorf("%q", bad)
		}
	}
	for line, want := range map[string]bool{LogOrigin(s.Origin, 1): true, LogOrigin(s.Origin, 3): true, "a.example/witan": false, "a.example:8443/witan/1": false, line: false} {
		if IsLogOrigin(s.Origin, line) != want {
			t.Errorf("%q", line)
		}
	}
}
