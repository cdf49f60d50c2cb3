package bridge

import (
	"context"
	"fmt"
	"net/http"

	"github.com/delegated-ipam/delegated-ipam/pkg/metrics/endpoint"
)

// handler serves /metrics, /readyz and /healthz.
func (m *metrics) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+endpoint.Path, endpoint.Handler(m.registry))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !m.ready.Load() {
			http.Error(w, "nothing is published in spec.ipam.pool yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// serve serves on a TCP address until ctx ends.
func serve(ctx context.Context, address string, h http.Handler) error {
	listener, err := endpoint.Listen(ctx, address)
	if err != nil {
		return err
	}
	return endpoint.Serve(ctx, listener, h)
}
