package doctor

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// verified is a pool whose profile has a lookup.
func verified(by, reason string) *models.PoolStatus {
	return &models.PoolStatus{
		Pool: "default", ProfileFacts: map[string]any{"lookup": "host-local-leases"},
		Verification: &models.PoolVerification{By: by, Reason: reason},
	}
}

func TestWhyLookupIsOffIsAWarning(t *testing.T) {
	none := verified("check", "")
	none.ProfileFacts = map[string]any{"lookup": "none"}
	of := func(p ...*models.PoolStatus) []Finding {
		return Sight{Status: &models.DelegatedIPAMStatus{Pools: p}}.verification()
	}
	judge(t, map[string]judged{
		"by lookup":                     {of(verified("lookup", "")), []string{"ok verification"}, []string{"by lookup"}},
		"by lookup that is not proven":  {of(verified("lookup", "no ADD yet")), []string{"ok verification"}, []string{"no ADD yet"}},
		"by CHECK because it is off":    {of(verified("check", "ADD returned 10.0.0.5")), []string{"warning verification"}, []string{"ADD returned 10.0.0.5", "dataDir"}},
		"by CHECK, and there is none":   {of(none), []string{"ok verification"}, []string{"by check"}},
		"two pools":                     {of(verified("nothing", "off"), verified("lookup", "")), []string{"warning verification", "ok verification"}, nil},
		"a plugin that is not known":    {of(&models.PoolStatus{Pool: "default"}), nil, nil},
		"a sidecar of an older version": {of(), nil, nil},
	})
}

func TestAPluginOfHeldAttachmentsThatCannotBeFoundIsAnError(t *testing.T) {
	of := func(p ...*models.MovedPlugin) []Finding {
		return Sight{Status: &models.DelegatedIPAMStatus{MovedPlugins: p}}.heldPlugins()
	}
	moved := &models.MovedPlugin{Pool: "default", Plugin: "host-local", Binary: "/old/host-local", Executable: "/opt/cni/bin/host-local"}
	gone := &models.MovedPlugin{Pool: "blue", Plugin: "static", Binary: "/old/static", Error: "/old/static does not exist any more"}
	judge(t, map[string]judged{
		"all are there":     {of(), []string{"ok held-plugins"}, []string{"all recorded attachments"}},
		"one has moved":     {of(moved), []string{"ok held-plugins"}, []string{"/old/host-local", "/opt/cni/bin/host-local"}},
		"one is not there":  {of(gone), []string{"error held-plugins"}, []string{"/old/static", "--cni-bin-dir"}},
		"one moved, a gone": {of(moved, gone), []string{"ok held-plugins", "error held-plugins"}, nil},
	})
}
