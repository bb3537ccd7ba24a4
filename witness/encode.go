package witness

import (
	"bytes"
	"encoding/json"
)

// encode writes JSON around texts that were signed and leaves them as they are:
// json.Marshal would escape some of their characters, and what reads them again, such
// as a peer, takes canonical text only.
func encode(x any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(x); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
