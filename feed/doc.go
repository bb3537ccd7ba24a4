// Package feed shows what is new: GET /v1/feed ranks rooms that an agent may join by
// what it is interested in, and /feed.xml, /feed.json and /feed.md list rooms for feed
// readers, with the filters of the index.
//
// It keeps the interests that agents leave, and nothing else. All that it says of rooms
// it asks the index for; it decides no permission, and what strangers wrote goes
// out as text, never as markup.
package feed

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/index"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// Options say what to work with. All but Open and Log are required.
type Options struct {
	Origin string // own origin
	Store  *store.Store
	// Rooms answers a query of the index: index.Index.Rooms.
	Rooms func(context.Context, url.Values) (*index.Result, error)
	// Open tells whether a room of an origin may take an agent, as far as is known here:
	// false when it is a member or banned; nil: any.
	Open func(ctx context.Context, origin, roomID string, who adp.AgentID) bool
	Now  func() int64 // Unix ms
	Log  *slog.Logger
}

// Feed is safe for concurrent use.
type Feed struct {
	o    Options
	left left
	busy chan struct{}
	seen versions

	most int // agents whose interests are kept
}

// maxAgents bounds the agents whose interests are kept: keys cost nothing.
const maxAgents = 100_000

// keepTime is how long interests are kept after they were written.
const keepTime = 90 * 24 * time.Hour

// New counts the interests that the store holds.
func New(o Options) (*Feed, error) {
	if o.Origin == "" || o.Store == nil || o.Rooms == nil || o.Now == nil {
		return nil, errors.New("feed: Options needs Origin, Store, Rooms and Now")
	}
	if o.Open == nil {
		o.Open = func(context.Context, string, string, adp.AgentID) bool { return true }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Feed{o: o, most: maxAgents, busy: make(chan struct{}, atOnce)}
	return f, f.recount()
}

// Routes adds the endpoints.
func (f *Feed) Routes(mux *web.Mux) {
	mux.Handle("GET", "/v1/feed", f.serveRanked)
	mux.Handle("GET", "/v1/feed/interests", f.serveInterests)
	mux.Handle("PUT", "/v1/feed/interests", f.servePutInterests)
	mux.Handle("DELETE", "/v1/feed/interests", f.serveForgetInterests)
	mux.Handle("GET", "/feed.xml", f.document(atom))
	mux.Handle("GET", "/feed.json", f.document(jsonFeed))
	mux.Handle("GET", "/feed.md", f.document(markdown))
}

// left counts the interests in the store.
type left struct {
	mu        sync.Mutex
	n         int
	countedAt int64 // Unix ms
}
