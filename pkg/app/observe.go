package app

import (
	"context"
	"net"
	"net/http"

	"github.com/delegated-ipam/delegated-ipam/pkg/metrics"
	"github.com/delegated-ipam/delegated-ipam/pkg/metrics/endpoint"
	"github.com/delegated-ipam/delegated-ipam/pkg/options"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// route is what the socket answers: the API, whose requests are measured, those of
// callers that are refused too, and the metrics.
func (d *daemon) route(api *restapi.API) http.Handler {
	callers := unixsock.Callers{UIDs: d.config.AllowUIDs, GIDs: d.config.AllowGIDs}
	guarded := d.metrics.API(unixsock.Authorize(api, callers, d.log), api)
	scraped := unixsock.Authorize(d.metrics.Handler(), callers, d.log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == endpoint.Path {
			scraped.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// watched adds to the metrics what is asked for at each scrape, and the series of
// the plugins that are configured now.
func (d *daemon) watched() {
	d.metrics.Watch(d.engine, func() metrics.Report {
		r := d.Report(context.Background())
		return metrics.Report{Ready: r.Ready, Quarantined: len(r.Quarantined)}
	})
	for _, pool := range d.config.poolNames() {
		if n, err := d.conf.Network(pool); err == nil {
			d.metrics.RegisterPlugin(n.IPAMType)
		}
	}
}

// listenForScrapes takes --metrics-address; nil where none is wanted.
func (d *daemon) listenForScrapes(ctx context.Context) (net.Listener, error) {
	address, err := options.ListenAddress(d.config.MetricsAddress)
	if address == "" || err != nil {
		return nil, err
	}
	return endpoint.Listen(ctx, address)
}

// serveScrapes answers there until ctx ends. Addresses are served without it, too.
func (d *daemon) serveScrapes(ctx context.Context, l net.Listener) {
	if l == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+endpoint.Path, d.metrics.Handler())
	d.log.WithField("address", l.Addr()).Info("Serving metrics")
	if err := endpoint.Serve(ctx, l, mux); err != nil {
		d.log.WithError(err).Error("Metrics are not served any more")
	}
}
