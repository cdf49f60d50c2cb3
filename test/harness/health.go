package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
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
			// NotReady is the error of the plugin's STATUS, or why it refuses the configuration.
			NotReady   string         `json:"not-ready"`
			CNIVersion string         `json:"cni-version"`
			Profile    map[string]any `json:"profile-facts"`
		} `json:"pools"`
		Options []struct {
			Name   string `json:"name"`
			Value  string `json:"value"`
			Source string `json:"source"`
		} `json:"options"`
		Counters    map[string]int64 `json:"counters"`
		Quarantined []struct {
			File   string `json:"file"`
			Reason string `json:"reason"`
		} `json:"quarantined"`
	} `json:"delegated-ipam"`
}

// Health returns the health of a daemon, which must respond.
func (c Client) Health(t testing.TB) Health {
	t.Helper()
	h, err := c.health()
	check.Must(t, err)
	return h
}

// Ready returns nil if the daemon is ready, otherwise an error with its reasons.
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

// WaitNotReady waits until the daemon is not ready for reasons that contain each text.
func (c Client) WaitNotReady(t testing.TB, texts ...string) {
	t.Helper()
	Eventually(t, "the daemon not to be ready", func() error {
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

// WantJournal fails the test unless the journal of a stopped daemon equals its last list. It
// ignores an attachment that was in transition in that list and may have changed since.
func (n *Node) WantJournal(t testing.TB, last []Attachment) {
	t.Helper()
	onDisk, err := oracle.Journal(n.StateDir)
	check.Must(t, err)
	inTransition := map[string]bool{}
	for _, a := range last {
		inTransition[a.ContainerID] = a.inTransition()
	}
	last = slices.DeleteFunc(slices.Clone(last), Attachment.inTransition)
	onDisk = slices.DeleteFunc(onDisk, func(k oracle.Attachment) bool { return inTransition[k.ContainerID] })
	if err := oracle.CompareAttachments(onDisk, KeptRecords(last)); err != nil {
		t.Errorf("after the stop: %v", err)
	}
}

// inTransition reports whether an attachment may soon change without a request.
func (a Attachment) inTransition() bool {
	soon := time.Now().Add(waitTimeout)
	switch {
	case a.State == "adding" || a.State == "releasing":
		return true
	case a.State == "cooldown":
		return a.ReleaseAt.Before(soon)
	default:
		return a.Expiration != nil && a.Expiration.Deadline.Before(soon)
	}
}

// KeptRecords converts a list into records that the oracle compares with the journal.
func KeptRecords(list []Attachment) []oracle.Attachment {
	var all []oracle.Attachment
	for _, a := range list {
		k := oracle.Attachment{
			ContainerID: a.ContainerID, Owner: a.Owner, Pool: a.Pool, Network: a.Network,
			State: a.State, Claims: a.Claims,
		}
		for _, address := range a.Addresses {
			k.IPs = append(k.IPs, address.IP)
		}
		all = append(all, k)
	}
	return all
}
