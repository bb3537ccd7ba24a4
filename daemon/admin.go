package daemon

import (
	"encoding/json"
	"net/http"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/host"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/web"
)

const adminBytes = 64 << 10

// adminMux answers the operator's commands.
func (d *daemon) adminMux() http.Handler {
	mux := web.NewMux()
	d.witness.AdminRoutes(mux)
	d.webhooks.AdminRoutes(mux)
	mux.Handle("GET", "/keys", d.serveKeys)
	mux.Handle("GET", "/log/witnesses", func(w http.ResponseWriter, _ *http.Request) error {
		web.WriteJSON(w, http.StatusOK, d.collector.Status())
		return nil
	})
	if d.host != nil {
		mux.Handle("GET", "/host/access", func(w http.ResponseWriter, _ *http.Request) error {
			web.WriteJSON(w, http.StatusOK, d.host.Access())
			return nil
		})
		mux.Handle("POST", "/host/access", func(w http.ResponseWriter, r *http.Request) error {
			var change host.AccessChange
			if err := adminBody(w, r, &change); err != nil {
				return err
			}
			now, err := d.host.ChangeAccess(change)
			if err != nil {
				return err
			}
			if said, err := json.Marshal(change); err == nil {
				d.log.Info("access changed by the operator", "change", string(said))
			}
			web.WriteJSON(w, http.StatusOK, now)
			return nil
		})
	}
	d.keepingRoutes(mux)
	d.indexRoutes(mux)
	d.peerRoutes(mux)
	mux.Handle("GET", "/mirror/hosts", func(w http.ResponseWriter, _ *http.Request) error {
		web.WriteJSON(w, http.StatusOK, d.mirror.Hosts())
		return nil
	})
	for name, do := range map[string]func(string) error{
		"add":     func(o string) error { return d.mirror.Add(o, "runtime") },
		"remove":  d.mirror.Remove,
		"pause":   d.mirror.Pause,
		"resume":  d.mirror.Resume,
		"retry":   d.mirror.Retry,
		"release": d.mirror.Release,
		"approve": d.approve,
	} {
		mux.Handle("POST", "/mirror/"+name, func(w http.ResponseWriter, r *http.Request) error {
			var body struct {
				Origin string `json:"origin"` // or the URL of a room, where that makes sense
			}
			if err := adminBody(w, r, &body); err != nil {
				return err
			}
			if err := do(body.Origin); err != nil {
				if adp.CodeOf(err) == "" {
					err = adp.Errorf(adp.InvalidRequest, "%v", err)
				}
				return err
			}
			d.log.Info("mirror changed by the operator", "command", name, "origin", body.Origin)
			return d.answerStanding(w, body.Origin)
		})
	}
	return mux
}

// approve accepts the new keys of a host.
func (d *daemon) approve(name string) error {
	origin, err := fetch.Origin(name, true)
	if err != nil {
		return err
	}
	return d.bindings.Approve(origin)
}

// adminBody reads a command of the operator, who is trusted but may mistype.
func adminBody(w http.ResponseWriter, r *http.Request, to any) error {
	body, err := web.ReadBody(w, r, adminBytes)
	if err != nil {
		return err
	}
	v, err := adp.Scan(body)
	if err != nil {
		return adp.Errorf(adp.InvalidRequest, "the body is %v", err)
	}
	if err := json.Unmarshal(v.Raw(), to); err != nil {
		return adp.Errorf(adp.InvalidRequest, "the body does not fit: %v", err)
	}
	return nil
}
