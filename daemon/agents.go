package daemon

import (
	"net/http"

	"golang.org/x/time/rate"

	"github.com/witan-adp/witan/internal/mcpserver"
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
