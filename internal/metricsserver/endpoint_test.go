package metricsserver

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestPortInUse(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	check.Must(t, err)
	defer l.Close()
	_, err = Listen(t.Context(), l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "--metrics-address "+l.Addr().String()) {
		t.Errorf("a second listener: %v; want an error that names the address", err)
	}
}

func TestServe(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	check.Must(t, err)
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "a_gauge", Help: "A gauge."}))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, Handler(registry)) }()

	resp, err := http.Get("http://" + l.Addr().String() + Path)
	check.Must(t, err)
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(body), "a_gauge 0\n") {
		t.Errorf("got %q, %v", body, err)
	}
	end()
	if err := <-ended; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	if _, err := http.Get("http://" + l.Addr().String() + Path); err == nil {
		t.Error("the port is still served")
	}
}
