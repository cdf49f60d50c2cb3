// Package metricsserver serves the metrics of the daemon and of the bridge on a TCP address
// (--metrics-address), with bounded memory: any host may connect.
package metricsserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Path is the path of the metrics.
const Path = "/metrics"

const (
	// maxScrapes is the largest number of scrapes that are collected concurrently; other scrapes get 503.
	maxScrapes = 4
	// scrapeTimeout is the largest timeout of a scrape: at most scrape_interval, by default 1 min.
	scrapeTimeout = time.Minute

	headerTimeout = 10 * time.Second
	// writeTimeout exceeds scrapeTimeout, so that a late scrape gets 503.
	writeTimeout = 70 * time.Second
	idleTimeout  = 20 * time.Second
	// maxHeader is in bytes; net/http adds 4 KiB.
	maxHeader = 1 << 10
	// shutdownTimeout is how long a scrape may continue after the end of Serve's context.
	shutdownTimeout = time.Second
)

// Counter registers a counter with a label, each value of which exists from the start: a rate needs a zero.
func Counter(r prometheus.Registerer, name, help, label string, values ...string) *prometheus.CounterVec {
	c := promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

// Handler returns a handler that serves a registry as text or OpenMetrics, to few concurrent scrapes. With
// a timeout it buffers a response, so that a client that does not read it does not delay other scrapes.
func Handler(r *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout})
}

// Mux returns a handler that serves a registry at Path, and each check at its path: with 503 and the
// error if it fails.
func Mux(r *prometheus.Registry, checks map[string]func() error) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, Handler(r))
	for path, check := range checks {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	return mux
}

// ListenAndServe serves h on host:port until ctx ends; not at all if the address is empty.
func ListenAndServe(ctx context.Context, address string, h http.Handler) error {
	if address == "" {
		return nil
	}
	l, err := Listen(ctx, address)
	if err != nil {
		return err
	}
	return Serve(ctx, l, h)
}

// Listen listens on host:port. The error names the address.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address %s cannot be served: %w; expected a free port of an address of this machine", address, err)
	}
	return l, nil
}

// Serve serves h on a listener until ctx ends, then closes it and returns nil. It limits the open
// connections.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	all := connections{open: map[net.Conn]connection{}}
	server := &http.Server{
		Handler: h, MaxHeaderBytes: maxHeader, ConnState: all.track,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		shutdown, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if server.Shutdown(shutdown) != nil {
			_ = server.Close() // ends a scrape that still runs
		}
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("--metrics-address %s: %w", l.Addr(), err)
	}
	<-ended
	return nil
}
