package daemon

import (
	"html/template"
	"net/http"

	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/internal/mcpserver"
	"github.com/witan-adp/witan/internal/openapi"
	"github.com/witan-adp/witan/internal/page"
	"github.com/witan-adp/witan/internal/web"
)

// agentRoutes adds what agents use instead of the API: it asks the API, in this process, through mux.
func (d *daemon) agentRoutes(mux *web.Mux) {
	if !d.cfg.MCP.Enabled {
		return
	}
	// The guard in front has counted the caller already; this one turns panics into answers.
	var inside http.Handler = (&web.Guard{Origin: d.origin, Rate: rate.Inf, Log: d.log}).Wrap(mux)
	mux.Handle("POST", "/mcp", mcpserver.NewHTTP(mcpserver.Options{Daemon: d.origin, Version: d.edges.Version, Log: d.log}, inside).Serve)
}

// describe adds the description of all routes of mux, itself included: it comes last. A description that cannot be read is a fault of the
// program, and panics.
func (d *daemon) describe(mux *web.Mux) {
	var about *openapi.Document
	var body template.HTML
	mux.Handle("GET", "/openapi.json", func(w http.ResponseWriter, r *http.Request) error { return about.Serve(w, r) })
	mux.Handle("GET", "/docs", func(w http.ResponseWriter, r *http.Request) error {
		return d.site.ServeDocument(w, r, page.Document{Title: "HTTP API", Section: "docs", Lead: "Every endpoint of this daemon.", Body: body})
	})
	var err error
	about, err = openapi.For(openapi.About{Origin: d.origin, Version: d.edges.Version}, mux.Routes())
	if err == nil {
		body, err = about.HTML()
	}
	if err != nil {
		panic(err)
	}
}
