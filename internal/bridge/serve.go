package bridge

import (
	"context"
	"fmt"
	"net/http"

	"github.com/delegated-ipam/delegated-ipam/internal/metricsserver"
)

// handler serves /metrics, /readyz and /healthz.
func (m *metrics) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsserver.Path, metricsserver.Handler(m.registry))
	check := func(failed func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := failed(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux.HandleFunc("GET /healthz", check(m.stuck))
	mux.HandleFunc("GET /readyz", check(m.notReady))
	return mux
}

// serve serves on a TCP address until ctx ends.
func serve(ctx context.Context, address string, h http.Handler) error {
	listener, err := metricsserver.Listen(ctx, address)
	if err != nil {
		return err
	}
	return metricsserver.Serve(ctx, listener, h)
}
