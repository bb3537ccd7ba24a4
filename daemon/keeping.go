package daemon

import (
	"context"
	"net/http"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/config"
	"github.com/witan-adp/witan/internal/fetch"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/web"
	"github.com/witan-adp/witan/mirror"
)

// keepingRoutes are the operator's commands about what is kept, shown and let go.
func (d *daemon) keepingRoutes(mux *web.Mux) {
	type record struct {
		Room   string `json:"room"` // URL, or the ID of an own room
		Seq    int64  `json:"seq"`
		Reason string `json:"reason"`
	}
	mux.Handle("GET", "/mirror/status", func(w http.ResponseWriter, r *http.Request) error {
		origin := r.URL.Query().Get("origin")
		if origin != "" {
			var err error
			if origin, err = fetch.Origin(origin, true); err != nil {
				return adp.Errorf(adp.InvalidRequest, "origin: %v", err)
			}
		}
		report := d.mirror.Report(origin)
		if origin != "" && len(report) == 0 {
			return adp.Errorf(adp.NotFound, "%s is not followed, and no room of it is held", origin)
		}
		web.WriteJSON(w, http.StatusOK, report)
		return nil
	})
	mux.Handle("POST", "/mirror/retention", func(w http.ResponseWriter, r *http.Request) error {
		var body struct {
			DryRun bool `json:"dry_run"`
		}
		if err := adminBody(w, r, &body); err != nil {
			return err
		}
		report, err := d.mirror.RetainNow(r.Context(), !body.DryRun)
		if err != nil {
			d.log.Error("retention failed", "error", err)
			return adp.Errorf(adp.InvalidRequest, "%v", err) // the operator may see it
		}
		web.WriteJSON(w, http.StatusOK, report)
		return nil
	})
	type target struct {
		Origin string `json:"origin"` // or the URL of a room
		Reason string `json:"reason"`
		Yes    bool   `json:"yes"`
	}
	mux.Handle("POST", "/mirror/quarantine", func(w http.ResponseWriter, r *http.Request) error {
		var body target
		if err := adminBody(w, r, &body); err != nil {
			return err
		}
		if err := d.mirror.Quarantine(body.Origin, body.Reason); err != nil {
			return err
		}
		d.log.Info("mirror changed by the operator", "command", "quarantine", "origin", body.Origin, "reason", body.Reason)
		return d.answerStanding(w, body.Origin)
	})
	mux.Handle("POST", "/mirror/forget", func(w http.ResponseWriter, r *http.Request) error {
		var body target
		if err := adminBody(w, r, &body); err != nil {
			return err
		}
		out, err := d.mirror.Forget(body.Origin, body.Yes)
		if err != nil {
			return err
		}
		web.WriteJSON(w, http.StatusOK, out)
		return nil
	})
	type role struct {
		path     string
		withhold func(ctx context.Context, room string, seq int64, reason string) (replica.Withholding, error)
		release  func(room string, seq int64) error
		list     func(room string) ([]replica.Withholding, error)
	}
	roles := []role{{"/mirror", func(_ context.Context, room string, seq int64, reason string) (replica.Withholding, error) {
		return d.mirror.Withhold(room, seq, reason)
	}, d.mirror.ReleaseRecord, func(room string) ([]replica.Withholding, error) {
		r, err := d.mirror.Room(room)
		if err != nil {
			return nil, err
		}
		return r.Withholdings()
	}}}
	if d.host != nil {
		roles = append(roles, role{"/host", d.host.Withhold, d.host.Release, d.host.Withheld})
	}
	for _, role := range roles {
		list := func(w http.ResponseWriter, room string) error {
			all, err := role.list(room)
			if err != nil {
				return err
			}
			if all == nil {
				all = []replica.Withholding{}
			}
			web.WriteJSON(w, http.StatusOK, all)
			return nil
		}
		mux.Handle("GET", role.path+"/withheld", func(w http.ResponseWriter, r *http.Request) error { return list(w, r.URL.Query().Get("room")) })
		mux.Handle("POST", role.path+"/withhold", func(w http.ResponseWriter, r *http.Request) error {
			var body record
			if err := adminBody(w, r, &body); err != nil {
				return err
			}
			if body.Reason == "" {
				return adp.Errorf(adp.InvalidRequest, "give the reason: it is kept, and shown to the operator only")
			}
			if _, err := role.withhold(r.Context(), body.Room, body.Seq, body.Reason); err != nil {
				return err
			}
			return list(w, body.Room)
		})
		mux.Handle("POST", role.path+"/show", func(w http.ResponseWriter, r *http.Request) error {
			var body record
			if err := adminBody(w, r, &body); err != nil {
				return err
			}
			if err := role.release(body.Room, body.Seq); err != nil {
				return err
			}
			return list(w, body.Room)
		})
	}
}

// answerStanding shows what a command changed: all hosts, or the host with the one room.
func (d *daemon) answerStanding(w http.ResponseWriter, name string) error {
	if report, ok := d.mirror.ReportRoom(name); ok {
		web.WriteJSON(w, http.StatusOK, report)
	} else {
		web.WriteJSON(w, http.StatusOK, d.mirror.Hosts())
	}
	return nil
}

// retention are the bounds of each host, as configured.
func (d *daemon) retention() func(origin string) mirror.Retention {
	bounds := func(r config.Retention) mirror.Retention {
		return mirror.Retention{Age: r.Age.D(), Bytes: int64(r.Bytes), Count: r.Count, HostBytes: int64(r.HostBytes), HostCount: r.HostCount}
	}
	all := bounds(d.cfg.Mirror.Retention)
	own := map[string]mirror.Retention{}
	for _, h := range d.cfg.Mirror.Hosts {
		origin, err := fetch.Origin(h.URL, true)
		if err != nil {
			continue // Add says so
		}
		if own[origin] = bounds(h.Retention.Over(d.cfg.Mirror.Retention)); h.KeepAll {
			own[origin] = mirror.Retention{}
		}
	}
	return func(origin string) mirror.Retention {
		if r, ok := own[origin]; ok {
			return r
		}
		return all
	}
}
