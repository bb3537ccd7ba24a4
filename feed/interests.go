package feed

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/web"
)

// Interests are what an agent says of itself. Capabilities are words such as
// "code-review", which are compared with tags, types and words of rooms; languages
// are language tags (BCP 47).
type Interests struct {
	Capabilities []string `json:"capabilities"`
	Languages    []string `json:"languages"`
	UpdatedAt    int64    `json:"updated_at,omitempty"` // Unix ms
}

// Bounds of interests.
const (
	maxCapabilities = 32
	maxLanguages    = 16
	maxWord         = 64 // bytes
	bodyBytes       = 8 << 10
)

// check gives interests in their one spelling: lower case, each once.
func (in Interests) check() (Interests, error) {
	var err error
	if in.Capabilities, err = words("capabilities", in.Capabilities, maxCapabilities); err != nil {
		return in, err
	}
	in.Languages, err = words("languages", in.Languages, maxLanguages)
	return in, err
}

func words(name string, list []string, most int) ([]string, error) {
	out := []string{}
	for _, s := range list {
		s = strings.ToLower(strings.TrimSpace(s))
		if s == "" || len(s) > maxWord || !utf8.ValidString(s) {
			return nil, adp.Errorf(adp.InvalidRequest, "%s: each one has 1 to %d bytes of UTF-8", name, maxWord).With("parameter", name)
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if len(out) > most {
		return nil, adp.Errorf(adp.InvalidRequest, "%s: there are %d; give at most %d", name, len(out), most).With("parameter", name)
	}
	return out, nil
}

// interestsOf are what an agent left; ok is false when that is nothing.
func (f *Feed) interestsOf(who adp.AgentID) (in Interests, ok bool, err error) {
	raw, ok, err := f.o.Store.Get(store.Interests(string(who)))
	if err != nil || !ok {
		return in, false, err
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return in, false, fmt.Errorf("feed: the interests of %s: %w", who, err)
	}
	return in, true, nil
}

func (f *Feed) caller(w http.ResponseWriter, r *http.Request) (adp.AgentID, error) {
	w.Header().Set("Cache-Control", web.CacheNever)
	return web.Identified(r, f.o.Origin, f.o.Now()/1000)
}

func noInterests() error {
	return adp.Errorf(adp.NotFound, `you left no interests here; PUT {"capabilities": […], "languages": […]} does`)
}

// serveInterests answers GET /v1/feed/interests: what the caller left.
func (f *Feed) serveInterests(w http.ResponseWriter, r *http.Request) error {
	who, err := f.caller(w, r)
	if err != nil {
		return err
	}
	in, ok, err := f.interestsOf(who)
	if err == nil && !ok {
		err = noInterests()
	}
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, in)
	return nil
}

// servePutInterests answers PUT /v1/feed/interests, which replaces them.
func (f *Feed) servePutInterests(w http.ResponseWriter, r *http.Request) error {
	who, err := f.caller(w, r)
	if err != nil {
		return err
	}
	body, err := web.ReadBody(w, r, bodyBytes)
	if err != nil {
		return err
	}
	v, err := adp.Scan(body)
	if err != nil {
		return adp.Errorf(adp.InvalidRequest, "the body is %v", err)
	}
	var in Interests
	d := json.NewDecoder(strings.NewReader(string(v.Raw())))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return adp.Errorf(adp.InvalidRequest, `the body does not fit: %v; send {"capabilities": […], "languages": […]}`, err)
	}
	if in, err = in.check(); err != nil {
		return err
	}
	in.UpdatedAt = f.o.Now()
	value, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := f.keep(who, value); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, in)
	return nil
}

// serveForgetInterests answers DELETE /v1/feed/interests.
func (f *Feed) serveForgetInterests(w http.ResponseWriter, r *http.Request) error {
	who, err := f.caller(w, r)
	if err != nil {
		return err
	}
	f.left.mu.Lock()
	defer f.left.mu.Unlock()
	_, ok, err := f.interestsOf(who)
	if err != nil {
		return err
	}
	if !ok {
		return noInterests()
	}
	var b store.Batch
	b.Delete(store.Interests(string(who)))
	if err := f.o.Store.Commit(&b); err != nil {
		return err
	}
	f.left.n--
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// keep stores interests, as long as there is room for one more agent.
func (f *Feed) keep(who adp.AgentID, value []byte) error {
	f.left.mu.Lock()
	defer f.left.mu.Unlock()
	_, before, err := f.interestsOf(who)
	if err != nil {
		return err
	}
	if !before && f.left.n >= f.most {
		if now := f.o.Now(); now-f.left.countedAt >= 60_000 { // some may have run out
			if err := f.count(); err != nil {
				return err
			}
		}
		if f.left.n >= f.most {
			return adp.Errorf(adp.RateLimited, "the interests of as many agents are kept here as there may be; name yours in the query instead").With("retry_after", 3600)
		}
	}
	var b store.Batch
	b.PutTTL(store.Interests(string(who)), value, keepTime)
	if err := f.o.Store.Commit(&b); err != nil {
		return err
	}
	if !before {
		f.left.n++
	}
	return nil
}

func (f *Feed) recount() error {
	f.left.mu.Lock()
	defer f.left.mu.Unlock()
	return f.count()
}

// count needs left.mu.
func (f *Feed) count() error {
	n := 0
	err := f.o.Store.View(func(r store.Reader) error {
		from, to := store.InterestsRange()
		return r.Keys(from, to, func([]byte) bool { n++; return true })
	})
	if err == nil {
		f.left.n, f.left.countedAt = n, f.o.Now()
	}
	return err
}
