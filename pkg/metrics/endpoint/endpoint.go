// Package endpoint serves metrics on a TCP address (--metrics-address), for the
// sidecar and the bridge.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Path is where metrics are.
const Path = "/metrics"

const (
	headerTimeout = 10 * time.Second
	// writeTimeout is above what Prometheus gives a scrape (scrape_timeout, by
	// default 10 s and at most scrape_interval, by default 1 min).
	writeTimeout = 70 * time.Second
	idleTimeout  = 2 * time.Minute
	// grace is how long a scrape that has begun may go on after the end.
	grace = time.Second
)

// Handler answers with what a registry holds, as text or as OpenMetrics.
func Handler(r *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Listen listens on host:port. The error says that it is in use.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address %s cannot be served: %w; expected a free port of an address of this machine", address, err)
	}
	return l, nil
}

// Serve answers on a listener until ctx ends, then closes it.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		patience, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if server.Shutdown(patience) != nil {
			_ = server.Close() // who still reads gets no more
		}
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("--metrics-address %s: %w", l.Addr(), err)
	}
	<-ended
	return nil
}
