//go:build js && wasm

// Command wasm is the verifier of witan for a web worker in a reader's browser. It reads a room from the daemon that shows it, verifies it as
// "witan verify" does, with the same packages, and holds what the page says of it against the records. It asks that daemon alone, and
// nobody believes it more than the machine that it runs on.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall/js"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/inspect"
)

// request is what the worker asks for.
type request struct {
	Room   string        `json:"room"` // absolute URL of the room's API at the daemon
	ID     string        `json:"id"`
	Said   *inspect.Said `json:"said"`
	Signed []string      `json:"signed"` // absolute URLs of lists of what is signed about the room
}

// maxSigned bounds how much of each list of what is signed is checked: anybody can sign.
const maxSigned = 2000

func main() {
	// witanVerify(request: JSON text, progress(done, total, records)) → Promise of a report as JSON text
	js.Global().Set("witanVerify", js.FuncOf(func(_ js.Value, args []js.Value) any {
		text, progress := args[0].String(), args[1]
		return promise(func() (any, error) { return verify(text, progress) })
	}))
	select {} // the worker ends us
}

func verify(text string, progress js.Value) (string, error) {
	var q request
	if err := json.Unmarshal([]byte(text), &q); err != nil {
		return "", err
	}
	ctx := context.Background()
	in := inspect.New(q.Room)
	in.Said = q.Said
	in.Progress = func(done, total, records int64) { progress.Invoke(float64(done), float64(total), float64(records)) }
	if err := in.Archive(ctx, place{q.Room, q.ID}, q.ID); err != nil {
		return "", err
	}
	for _, url := range q.Signed {
		more, err := list(url, maxSigned, func(v adp.Value) { in.CheckSigned(v) })
		if err != nil {
			return "", fmt.Errorf("what is signed about the room cannot be read: %w", err)
		}
		in.MoreSigned = in.MoreSigned || more
	}
	out, err := json.Marshal(in.Report())
	return string(out), err
}
