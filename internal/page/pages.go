package page

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/web"
)

// frontView is what the first page shows.
type frontView struct {
	Self
	Recent []RoomItem
}

// recentRooms is how many rooms the first page names.
const recentRooms = "6"

// ServeFront answers GET / to browsers.
func (s *Site) ServeFront(w http.ResponseWriter, r *http.Request) error {
	self, err := s.src.Self(r.Context())
	if err != nil {
		return err
	}
	list, err := s.src.Rooms(r.Context(), url.Values{"limit": {recentRooms}})
	if err != nil {
		return err
	}
	return s.serve(w, r, "front", Frame{Title: self.Authority, Page: frontView{self, list.Rooms}})
}

func (s *Site) serveHosts(w http.ResponseWriter, r *http.Request) error {
	hosts, err := s.src.Hosts(r.Context())
	if err != nil {
		return err
	}
	return s.serve(w, r, "hosts", Frame{Title: t("hosts.title"), Section: "hosts", Page: hosts})
}

// hostView is what the page of a host shows.
type hostView struct {
	*Host
	Listed   *RoomList
	NextPage string
	Evidence []signed
	More     bool // there is more evidence
}

// serveHost answers GET /hosts/{authority}.
func (s *Site) serveHost(w http.ResponseWriter, r *http.Request) error {
	q, err := web.ParseQuery(r)
	if err != nil {
		return err
	}
	cursor, err := web.String(q, "cursor")
	if err != nil {
		return err
	}
	h, err := s.src.Host(r.Context(), r.PathValue("authority"))
	if err != nil {
		return err
	}
	v := hostView{Host: h}
	asked := url.Values{"host": {h.Origin}, "limit": {"25"}}
	if cursor != "" {
		asked.Set("cursor", cursor)
	}
	if v.Listed, err = s.src.Rooms(r.Context(), asked); err != nil {
		return err
	}
	if v.Listed.Next != "" {
		v.NextPage = hostPath(h.Authority) + "?" + url.Values{"cursor": {v.Listed.Next}}.Encode()
	}
	items, next, err := s.src.Signed(r.Context(), "evidence", url.Values{"origin": {h.Origin}, "limit": {"20"}})
	if err != nil {
		return err
	}
	v.More = next != ""
	if v.Evidence, err = readSigned("evidence", items); err != nil {
		return err
	}
	return s.serve(w, r, "host", Frame{Title: h.Authority, Section: "hosts", Page: v})
}

// signed is a statement, an attestation or a piece of evidence in a list.
type signed struct {
	Kind, Hash, Agent, Origin, Authority, RoomID, Root string
	At, Records                                        int64
	Complete                                           bool
	Class, Reason, Raw                                 string
	Seq                                                int64
}

// readSigned reads what /v1/witness lists.
func readSigned(kind string, items [][]byte) (out []signed, err error) {
	for _, item := range items {
		v, err := adp.Scan(item)
		if err != nil {
			return nil, err
		}
		x := signed{Kind: kind}
		p := v.Get("event").Get("payload")
		if kind == "evidence" {
			p = v
			x.Kind, x.Class, x.Agent, x.Reason = v.Get("kind").Text(), v.Get("class").Text(), v.Get("agent").Text(), v.Get("reason").Text()
			x.At, _ = v.Get("seen_at").Int()
			x.Seq, _ = v.Get("seq").Int()
			x.Raw = visible(pretty(v))
		} else {
			x.Agent, x.Hash, x.Root = v.Get("event").Get("actor").Text(), v.Get("hash").Text(), p.Get("archive_root").Text()
			x.Records, _ = p.Get("last_seq").Int()
			x.Complete = kind == "statements"
			at := "generated_at"
			if kind == "attestations" {
				at = "verified_at"
				x.Complete, _ = p.Get("complete").Bool()
			}
			x.At, _ = p.Get(at).Int()
		}
		x.Origin, x.RoomID = p.Get("origin").Text(), p.Get("room_id").Text()
		_, x.Authority, _ = strings.Cut(x.Origin, "://")
		out = append(out, x)
	}
	return out, nil
}

// signedLists are the lists of the witness page, the first of which is shown when
// none is asked for.
var signedLists = []string{"attestations", "statements", "evidence"}

// witnessView is what the witness page shows.
type witnessView struct {
	Self
	Log      Log
	Tabs     []tab
	List     string
	Items    []signed
	NextPage string
	Origin   string
	RoomID   string
}

type tab struct {
	Name, Href string
	Chosen     bool
}

// serveWitness answers GET /witness: list is statements, attestations or
// evidence; origin and room_id narrow it.
func (s *Site) serveWitness(w http.ResponseWriter, r *http.Request) error {
	q, err := web.ParseQuery(r)
	if err != nil {
		return err
	}
	asked := url.Values{"limit": {"25"}}
	for _, name := range []string{"origin", "room_id", "cursor"} {
		value, err := web.String(q, name)
		if err != nil {
			return err
		}
		if value = strings.TrimSpace(value); value != "" {
			asked.Set(name, value)
		}
	}
	v := witnessView{List: signedLists[0], Origin: asked.Get("origin"), RoomID: asked.Get("room_id")}
	list, err := web.String(q, "list")
	if err != nil {
		return err
	}
	if list != "" {
		v.List = list
	}
	if v.Self, err = s.src.Self(r.Context()); err != nil {
		return err
	}
	if v.Log, err = s.src.Log(); err != nil {
		return err
	}
	items, next, err := s.src.Signed(r.Context(), v.List, asked)
	if err != nil {
		return err
	}
	if v.Items, err = readSigned(v.List, items); err != nil {
		return err
	}
	asked.Del("limit")
	asked.Del("cursor")
	for _, name := range signedLists {
		asked.Set("list", name)
		v.Tabs = append(v.Tabs, tab{Name: name, Href: "/witness?" + asked.Encode(), Chosen: name == v.List})
	}
	if next != "" {
		asked.Set("list", v.List)
		asked.Set("cursor", next)
		v.NextPage = "/witness?" + asked.Encode()
	}
	return s.serve(w, r, "witness", Frame{Title: t("witness.title"), Section: "witness", Page: v})
}
