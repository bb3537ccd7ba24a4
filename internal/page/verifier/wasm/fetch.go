//go:build js && wasm

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"syscall/js"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/inspect"
)

// maxAnswer bounds what one answer may hold, in bytes; archive.jsonl is read as a stream.
const maxAnswer = 32 << 20

// place is a room at the daemon.
type place struct{ url, id string }

func (p place) Resource(context.Context) (*inspect.Resource, error) {
	v, _, err := getJSON(p.url)
	if err != nil {
		return nil, err
	}
	return inspect.ParseResource(v, p.id)
}

func (p place) Manifest(context.Context) ([]byte, error) {
	v, _, err := getJSON(p.url + "/archive")
	var r refusal
	if errors.As(err, &r) && (r.status == 404 || r.code == string(adp.RoomNotActive)) {
		return nil, nil
	}
	return v.Raw(), err
}

func (p place) Records(_ context.Context, after int64, limit int) ([]adp.Value, error) {
	v, _, err := getJSON(fmt.Sprintf("%s/events?after_seq=%d&limit=%d", p.url, after, limit))
	if err != nil {
		return nil, err
	}
	if v.Kind() != adp.Array {
		return nil, fmt.Errorf("the daemon answers %s where a list of records belongs", v.Kind())
	}
	list := make([]adp.Value, 0, v.Len())
	for e := range v.Elements() {
		list = append(list, e)
	}
	return list, nil
}

func (p place) Bundle(context.Context) (io.ReadCloser, error) {
	b, err := open(p.url + "/archive.jsonl")
	if r, ok := err.(refusal); ok {
		return nil, inspect.NotGiven{Err: r}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// refusal is an answer that is none of the 2xx.
type refusal struct {
	status  int
	code    string
	message string
}

func (r refusal) Error() string {
	if r.code == "" {
		return fmt.Sprintf("the daemon answers with status %d", r.status)
	}
	return fmt.Sprintf("%s: %s (status %d)", r.code, r.message, r.status)
}

// getJSON reads what stands at a URL, and the address of the next page if it is a list.
func getJSON(url string) (v adp.Value, next string, err error) {
	b, err := open(url)
	if err != nil {
		return v, "", err
	}
	defer b.Close()
	text, err := io.ReadAll(io.LimitReader(b, maxAnswer+1))
	if err != nil {
		return v, "", err
	}
	if len(text) > maxAnswer {
		return v, "", fmt.Errorf("%s answers with more than %d bytes", url, maxAnswer)
	}
	if v, err = adp.ScanDepth(text, adp.RecordDepth+24); err != nil {
		return v, "", fmt.Errorf("the answer of %s is %w", url, err)
	}
	return v, adp.NextPage(b.link), nil
}

// list goes through a list, page after page, up to a limit, and tells whether there is more. The next page is asked for where the first was: the
// daemon writes its own name into links, and the reader may have come by another one.
func list(address string, limit int, each func(adp.Value)) (more bool, err error) {
	first, err := url.Parse(address)
	if err != nil {
		return false, err
	}
	q := first.Query()
	for n, before := 0, ""; ; {
		v, next, err := getJSON(address)
		if err != nil {
			return false, err
		}
		if v.Kind() != adp.Array {
			return false, fmt.Errorf("%s answers %s where a list belongs", address, v.Kind())
		}
		for e := range v.Elements() {
			if n == limit {
				return true, nil
			}
			each(e)
			n++
		}
		if next == "" {
			return false, nil
		}
		to, err := url.Parse(next)
		if err != nil {
			return false, fmt.Errorf("the next page of %s: %w", address, err)
		}
		cursor := to.Query().Get("cursor")
		if cursor == "" || cursor == before || v.Len() == 0 {
			return false, fmt.Errorf("the list %s leads nowhere: its next page is %.200q", address, next)
		}
		before = cursor
		q.Set("cursor", cursor)
		first.RawQuery = q.Encode()
		address = first.String()
	}
}

// open begins to read what stands at a URL.
func open(url string) (*body, error) {
	r, err := await(js.Global().Call("fetch", url, map[string]any{"credentials": "omit", "redirect": "error", "cache": "no-store"}))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", url, err)
	}
	b := &body{url: url}
	if link := r.Get("headers").Call("get", "Link"); link.Type() == js.TypeString {
		b.link = link.String()
	}
	if stream := r.Get("body"); stream.Truthy() {
		b.reader = stream.Call("getReader")
	}
	if r.Get("ok").Bool() {
		return b, nil
	}
	defer b.Close()
	no := refusal{status: r.Get("status").Int()}
	text, err := io.ReadAll(io.LimitReader(b, 64<<10))
	if err != nil {
		return nil, err
	}
	if v, err := adp.ScanDepth(text, adp.RecordDepth+4); err == nil {
		no.code, no.message = v.Get("error").Get("code").Text(), v.Get("error").Get("message").Text()
	}
	return nil, no
}

// body is the body of an answer, chunk by chunk.
type body struct {
	url    string
	link   string   // the header Link, which leads to the next page of a list
	reader js.Value // a ReadableStreamDefaultReader; undefined when there is no body
	chunk  js.Value // what is left of the last one
	at, n  int
	end    error
}

// Read waits for a chunk and hands it on.
func (b *body) Read(p []byte) (int, error) {
	if !b.reader.Truthy() {
		return 0, io.EOF
	}
	for b.at == b.n {
		if b.end != nil {
			return 0, b.end
		}
		next, err := await(b.reader.Call("read"))
		switch {
		case err != nil:
			b.end = fmt.Errorf("%s was cut off: %w", b.url, err)
		case next.Get("done").Bool():
			b.end = io.EOF
		default:
			b.chunk = next.Get("value")
			b.at, b.n = 0, b.chunk.Get("length").Int()
		}
	}
	n := js.CopyBytesToGo(p, b.chunk.Call("subarray", b.at))
	b.at += n
	return n, nil
}

// Close ends the download.
func (b *body) Close() error {
	if b.reader.Truthy() {
		_, err := await(b.reader.Call("cancel"))
		return err
	}
	return nil
}

// await blocks until a Promise is settled.
func await(p js.Value) (js.Value, error) {
	done := make(chan struct{})
	var value js.Value
	var failed error
	then := js.FuncOf(func(_ js.Value, args []js.Value) any { value = args[0]; close(done); return nil })
	fail := js.FuncOf(func(_ js.Value, args []js.Value) any {
		failed = js.Error{Value: args[0]}
		close(done)
		return nil
	})
	defer then.Release()
	defer fail.Release()
	p.Call("then", then, fail)
	<-done
	return value, failed
}

// promise runs work in a goroutine of its own, for callers in JavaScript.
func promise(work func() (any, error)) js.Value {
	var start js.Func
	start = js.FuncOf(func(_ js.Value, args []js.Value) any {
		go func() {
			defer start.Release()
			if v, err := work(); err != nil {
				args[1].Invoke(js.Global().Get("Error").New(err.Error()))
			} else {
				args[0].Invoke(v)
			}
		}()
		return nil
	})
	return js.Global().Get("Promise").New(start)
}
