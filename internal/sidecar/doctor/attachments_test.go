package doctor

import (
	"errors"
	"testing"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

func TestAttachments(t *testing.T) {
	noon := strfmt.DateTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	later := strfmt.DateTime(time.Time(noon).Add(time.Hour))
	if got, want := lastVerified([]*models.Attachment{{State: "held", Verified: &later}, {State: "held", Verified: &noon}, {State: "held", Verified: &later}}),
		"3 held ones were verified, none before 2026-03-01T12:00:00Z"; got != want {
		t.Errorf("lastVerified is %q; want %q", got, want)
	}
	found := func(a models.Attachment, quarantined ...*models.QuarantinedRecord) []Finding {
		return run(&Observations{Status: &models.DelegatedIPAMStatus{Quarantined: quarantined}, After: []*models.Attachment{&a}}, "attachments")
	}
	runCases(t, map[string]testCase{
		"held":                  {found(models.Attachment{State: "held"}), states(ok), []string{"none of 1 attachments", "1 of 1 held ones were not verified"}},
		"held and verified":     {found(models.Attachment{State: "held", Verified: &noon}), states(ok), []string{"none before 2026-03-01T12:00:00Z"}},
		"cooldown":              {found(models.Attachment{State: "cooldown"}), states(ok), []string{"none is held"}},
		"held, after a failure": {found(models.Attachment{State: "held", LastError: "once"}), states(ok), nil},
		"lost":                  {found(models.Attachment{State: "held", Lost: true, Owner: "router"}), states(failed), []string{`the addresses of owner "router"`, "allocate"}},
		"outside the ranges": {
			found(models.Attachment{State: "held", Range: "outside", Owner: "router", Addresses: []*models.AttachmentAddress{{IP: "10.0.0.1"}, {IP: "fd00::1"}}}),
			states(failed),
			[]string{`owner "router" has 10.0.0.1 and fd00::1 outside the ranges`, "restart the owner"},
		},
		"slot of the bridge, outside the ranges": {
			found(models.Attachment{State: "held", Range: "outside", Owner: "ciliumnode-3"}), states(failed), []string{"recreate the pods", "the bridge releases"},
		},
		"excluded, outside the ranges": {found(models.Attachment{State: "held", Range: "outside", Excluded: true}), states(ok), nil},
		"no configuration":             {found(models.Attachment{State: "held", Range: "unconfigured"}), states(ok), nil},
		"failed DEL":                   {found(models.Attachment{State: "releasing", LastError: "no daemon", Owner: "x"}), states(warning), []string{"no daemon", `"x"`}},
		"failed ADD":                   {found(models.Attachment{State: "adding", LastError: "full"}), states(warning), []string{"full"}},
		"DEL in progress":              {found(models.Attachment{State: "releasing"}), states(ok), nil},
		"quarantined record": {
			found(models.Attachment{}, &models.QuarantinedRecord{File: "quarantine/x", Reason: "cut off"}), states(warning), []string{"quarantine/x", "cut off"},
		},
	})
	t.Run("no list", func(t *testing.T) {
		o := &Observations{Status: &models.DelegatedIPAMStatus{}, ListErr: errors.New("403")}
		if got := run(o, "attachments"); len(got) != 0 {
			t.Errorf("found %+v; want nothing", got)
		}
	})
}

func TestHeldPlugins(t *testing.T) {
	of := func(p ...*models.MovedPlugin) []Finding {
		return run(&Observations{Status: &models.DelegatedIPAMStatus{MovedPlugins: p}}, "held-plugins")
	}
	moved := &models.MovedPlugin{Pool: "default", Plugin: "host-local", Binary: "/old/host-local", Executable: "/opt/cni/bin/host-local"}
	gone := &models.MovedPlugin{Pool: "blue", Plugin: "static", Binary: "/old/static", Error: "/old/static does not exist any more"}
	runCases(t, map[string]testCase{
		"all exist":         {of(), states(ok), []string{"all recorded attachments"}},
		"moved":             {of(moved), states(ok), []string{"/old/host-local", "/opt/cni/bin/host-local"}},
		"missing":           {of(gone), states(failed), []string{"/old/static", "--cni-bin-dir"}},
		"moved and missing": {of(moved, gone), states(ok, failed), nil},
	})
}

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
	of := func(p ...*models.PoolStatus) []Finding {
		return run(&Observations{Status: &models.DelegatedIPAMStatus{Pools: p}}, "verification")
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
