package webhook

import (
	"net/http"

	"github.com/witan-adp/witan/internal/web"
)

// Routes adds the endpoints for agents, /v1/webhooks…, when they are enabled. The
// owner is who signed the request token.
func (w *Webhooks) Routes(mux *web.Mux) {
	if w.o.Public {
		w.routes(mux, "/v1/webhooks", http.StatusCreated, func(r *http.Request) (string, error) {
			who, err := web.Identified(r, w.o.Origin, w.o.Now()/1000)
			return string(who), err
		})
	}
}

// AdminRoutes adds the same for the operator, who owns all webhooks.
func (w *Webhooks) AdminRoutes(mux *web.Mux) {
	w.routes(mux, "/webhooks", http.StatusOK, func(*http.Request) (string, error) { return "", nil })
}

func (w *Webhooks) routes(mux *web.Mux, base string, created int, owner func(*http.Request) (string, error)) {
	handle := func(method, path string, do func(rw http.ResponseWriter, r *http.Request, owner string) error) {
		mux.Handle(method, base+path, func(rw http.ResponseWriter, r *http.Request) error {
			who, err := owner(r)
			if err != nil {
				return err
			}
			rw.Header().Set("Cache-Control", web.CacheNever)
			return do(rw, r, who)
		})
	}
	handle("GET", "", func(rw http.ResponseWriter, _ *http.Request, owner string) error {
		web.WriteJSON(rw, http.StatusOK, w.List(owner))
		return nil
	})
	handle("POST", "", func(rw http.ResponseWriter, r *http.Request, owner string) error {
		body, err := web.ReadBody(rw, r, bodyBytes)
		if err != nil {
			return err
		}
		asked, err := decode(body)
		if err != nil {
			return err
		}
		h, err := w.Add(r.Context(), owner, asked)
		if err != nil {
			return err
		}
		rw.Header().Set("Location", base+"/"+h.ID)
		web.WriteJSON(rw, created, h)
		return nil
	})
	one := func(do func(r *http.Request, id, owner string) (Hook, error)) func(http.ResponseWriter, *http.Request, string) error {
		return func(rw http.ResponseWriter, r *http.Request, owner string) error {
			h, err := do(r, r.PathValue("webhook_id"), owner)
			if err != nil {
				return err
			}
			web.WriteJSON(rw, http.StatusOK, h)
			return nil
		}
	}
	const id = "/{webhook_id}"
	handle("GET", id, one(func(_ *http.Request, id, owner string) (Hook, error) { return w.Show(id, owner) }))
	handle("POST", id+"/pause", one(func(_ *http.Request, id, owner string) (Hook, error) { return w.Pause(id, owner) }))
	handle("POST", id+"/resume", one(func(_ *http.Request, id, owner string) (Hook, error) { return w.Resume(id, owner) }))
	handle("POST", id+"/test", one(func(r *http.Request, id, owner string) (Hook, error) { return w.Test(r.Context(), id, owner) }))
	handle("DELETE", id, one(func(_ *http.Request, id, owner string) (Hook, error) {
		h, err := w.Show(id, owner)
		if err == nil {
			err = w.Remove(id, owner)
		}
		return h, err
	}))
}
