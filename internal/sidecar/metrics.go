package sidecar

import (
	"context"
	"net"
	"net/http"

	"github.com/delegated-ipam/delegated-ipam/internal/metricsserver"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/metrics"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/requestid"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
)

// route returns the handler of the socket: the API, with the requests of rejected callers
// measured too, and the metrics. Each request gets an ID.
func (a *app) route(api *httpapi.API) http.Handler {
	var health http.Handler = api
	if a.config.HealthDetails == options.HealthAuthorized {
		health = api.HealthState()
	}
	measured := a.metrics.API(unixsock.Authorize(api, health, a.callers(), a.refusals), api)
	scraped := unixsock.Authorize(a.metrics.Handler(), health, a.callers(), a.refusals)
	return requestid.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == metricsserver.Path {
			scraped.ServeHTTP(w, r)
			return
		}
		measured.ServeHTTP(w, r)
	}))
}

// callers returns the authorized callers of the API.
func (a *app) callers() unixsock.Callers {
	return unixsock.Callers{UIDs: a.config.AllowUIDs, GIDs: a.config.AllowGIDs}
}

// registerMetrics registers the metrics that are collected at each scrape, and the series
// of the configured plugins.
func (a *app) registerMetrics() {
	a.metrics.Register(a.engine, func() metrics.Report {
		r := a.Report(context.Background())
		return metrics.Report{Ready: r.Ready, Quarantined: len(r.Quarantined)}
	})
	for _, pool := range a.config.poolNames() {
		if n, err := a.conf.Network(pool); err == nil {
			a.metrics.RegisterPlugin(n.IPAMType)
		}
	}
}

// listenMetrics listens on --metrics-address; nil if that is empty.
func (a *app) listenMetrics(ctx context.Context) (net.Listener, error) {
	address, err := options.ListenAddress(a.config.MetricsAddress)
	if address == "" || err != nil {
		return nil, err
	}
	return metricsserver.Listen(ctx, address)
}

// serveMetrics serves the metrics until ctx ends. Its failure does not stop the API.
func (a *app) serveMetrics(ctx context.Context, l net.Listener) {
	if l == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsserver.Path, a.metrics.Handler())
	a.log.WithField("address", l.Addr()).Info("Serving metrics")
	if err := metricsserver.Serve(ctx, l, mux); err != nil {
		a.log.WithError(err).Error("Metrics are no longer served")
	}
}
