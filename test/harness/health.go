package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// State is the state of one component in the answer of GET /v1/healthz.
type State struct {
	State string `json:"state"`
	Msg   string `json:"msg"`
}

// Health is what a test reads of GET /v1/healthz.
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
			// NotReady is what the plugin says when it cannot serve.
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

// Health asks for the health of a sidecar that answers.
func (c Client) Health(t testing.TB) Health {
	t.Helper()
	h, err := c.health()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Ready returns nil if the sidecar says that it is ready, else why it is not.
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
