package endpoint

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMetricsAreOnLoopbackUnlessAHostIsNamed(t *testing.T) {
	for text, want := range map[string]string{"": "", ":9966": "127.0.0.1:9966", "0.0.0.0:9966": "0.0.0.0:9966", "[::]:9966": "[::]:9966"} {
		if got, err := Address(text); got != want || err != nil {
			t.Errorf("%q is served at %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestAnAddressThatCannotBeIsRefusedByName(t *testing.T) {
	for _, text := range []string{"9966", "host", "::1:9966x", ":no-such-service", ":99999", "unix:///run/x"} {
		if got, err := Address(text); err == nil || !strings.Contains(err.Error(), "--metrics-address is ") || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("%q gives %q, %v; want an error that names the option and what it takes", text, got, err)
		}
	}
}

func TestAPortInUseIsAnErrorThatNamesTheAddress(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Listen(t.Context(), l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "--metrics-address "+l.Addr().String()) {
		t.Errorf("a second one gets %v; want an error that names the address", err)
	}
}

func TestItAnswersUntilItIsEnded(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "a_gauge", Help: "A gauge."}))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, Handler(registry)) }()

	resp, err := http.Get("http://" + l.Addr().String() + Path)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(body), "a_gauge 0\n") {
		t.Errorf("it answered %q, %v", body, err)
	}
	end()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if _, err := http.Get("http://" + l.Addr().String() + Path); err == nil {
		t.Error("it still answers")
	}
}
