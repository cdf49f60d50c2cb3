package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// State is the state of one component in the response to GET /v1/healthz.
type State struct {
	State string `json:"state"`
	Msg   string `json:"msg"`
}

// Health holds the fields of GET /v1/healthz that tests read.
type Health struct {
	Cilium  State `json:"cilium"`
	CNIFile State `json:"cni-file"`
	IPAM    struct {
		Allocations map[string]string `json:"allocations"`
	} `json:"ipam"`
	DelegatedIPAM struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
		Pools   []struct {
			Pool    string `json:"pool"`
			Network string `json:"network"`
			Error   string `json:"error"`
			// NotReady is the error of the plugin's STATUS.
			NotReady   string         `json:"not-ready"`
			CNIVersion string         `json:"cni-version"`
			Profile    map[string]any `json:"profile-facts"`
		} `json:"pools"`
		Counters    map[string]int64 `json:"counters"`
		Quarantined []struct {
			File   string `json:"file"`
			Reason string `json:"reason"`
		} `json:"quarantined"`
	} `json:"delegated-ipam"`
}

// Health returns the health of a sidecar, which must respond.
func (c Client) Health(t testing.TB) Health {
	t.Helper()
	h, err := c.health()
	Must(t, err)
	return h
}

// Ready returns nil if the sidecar is ready, otherwise an error with its reasons.
func (c Client) Ready() error {
	h, err := c.health()
	if err != nil {
		return err
	}
	if !h.DelegatedIPAM.Ready {
		return fmt.Errorf("not ready: %q", h.DelegatedIPAM.Reasons)
	}
	return nil
}

// WaitNotReady waits until the sidecar is not ready for reasons that contain each text.
func (c Client) WaitNotReady(t testing.TB, texts ...string) {
	t.Helper()
	Eventually(t, "the sidecar not to be ready", func() error {
		err := c.Ready()
		for _, text := range texts {
			if err == nil {
				return fmt.Errorf("it is ready; want an error with %q", text)
			}
			if !strings.Contains(err.Error(), text) {
				return fmt.Errorf("it is not ready: %w; want an error with %q", err, text)
			}
		}
		return nil
	})
}

// WantCounters fails the test unless the counters have the values. Those that are not
// listed may have any value.
func (c Client) WantCounters(t testing.TB, want map[string]int64) {
	t.Helper()
	got := c.Health(t).DelegatedIPAM.Counters
	for name, value := range want {
		if got[name] != value {
			t.Errorf("counters are %v; want %v", got, want)
			return
		}
	}
}

func (c Client) health() (Health, error) {
	a, err := c.Try(http.MethodGet, "/v1/healthz")
	if err != nil {
		return Health{}, err
	}
	var h Health
	if a.Status != http.StatusOK {
		return h, fmt.Errorf("GET /v1/healthz answered %s", a)
	}
	if err := json.Unmarshal(a.Body, &h); err != nil {
		return h, fmt.Errorf("GET /v1/healthz answered %s: %w", a, err)
	}
	return h, nil
}
