package poolcheck

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// newStatus returns the status of a pool whose profile has a lookup.
func newStatus(by, reason string) *models.PoolStatus {
	return &models.PoolStatus{
		Pool: "default", ProfileFacts: map[string]any{"lookup": "host-local-leases"},
		Verification: &models.PoolVerification{By: by, Reason: reason},
	}
}

func TestVerification(t *testing.T) {
	none := newStatus("check", "")
	none.ProfileFacts = map[string]any{"lookup": "none"}
	of := func(p ...*models.PoolStatus) []check.Finding {
		return Verification.Run(&check.Observations{Status: &models.DelegatedIPAMStatus{Pools: p}})
	}
	runCases(t, map[string]testCase{
		"lookup":               {of(newStatus("lookup", "")), states(ok), []string{"held attachments are verified by lookup"}},
		"lookup is not proven": {of(newStatus("lookup", "no ADD yet")), states(ok), []string{"no ADD yet"}},
		"lookup is off":        {of(newStatus("check", "ADD returned 10.0.0.5")), states(warning), []string{"ADD returned 10.0.0.5", "dataDir"}},
		"no lookup":            {of(none), states(ok), []string{"by check"}},
		"two pools":            {of(newStatus("nothing", "off"), newStatus("lookup", "")), states(warning, ok), nil},
		"unknown plugin":       {of(&models.PoolStatus{Pool: "default"}), nil, nil},
		"older sidecar":        {of(), nil, nil},
	})
}
