package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// pluginFixture is a daemon with the scripted plugin, and an owner "other" that holds an address.
type pluginFixture struct {
	*harness.Daemon
	node   *harness.Node
	plugin harness.Scripted
	// binary is the path of the plugin.
	binary string
}

// otherAddress is the address of the owner "other": the first one that the plugin allocates.
const otherAddress = "10.15.0.2"

// scriptedNode returns a node with the scripted plugin as a type whose leases have container IDs.
func scriptedNode(t *testing.T, pluginType string) (*harness.Node, harness.Scripted) {
	t.Helper()
	n := harness.NewNode(t)
	check.Must(t, os.RemoveAll(filepath.Join(n.BinDir, pluginType)))
	plugin := n.InstallServer(t, pluginType, nil).Scripted
	n.Store = func() ([]oracle.Lease, error) { return plugin.Leases("pods") }
	return n, plugin
}

// newPluginFixture starts a daemon over a plugin type: host-local, or one without a profile.
func newPluginFixture(t *testing.T, pluginType string, flags ...string) pluginFixture {
	t.Helper()
	n, plugin := scriptedNode(t, pluginType)
	f := pluginFixture{n.Start(t, flags...), n, plugin, filepath.Join(n.BinDir, pluginType)}
	f.wantOther(t)
	return f
}

// inject makes a verb fail, and returns a function that removes the fault.
func (f pluginFixture) inject(t *testing.T, verb string, fault pluginFault) (undo func()) {
	t.Helper()
	if fault.script != "" {
		f.plugin.SetScript(t, verb, fault.script)
		return func() { f.plugin.ClearScript(t, verb) }
	}
	away := f.binary + ".away"
	check.Must(t, os.Rename(f.binary, away))
	if fault.mode != 0 {
		check.Must(t, os.WriteFile(f.binary, []byte(foreignELF), fault.mode))
	}
	return func() { check.Must(t, os.Rename(away, f.binary)) }
}

// wantOther wants the owner "other" to hold its address.
func (f pluginFixture) wantOther(t *testing.T) {
	t.Helper()
	wantHeld(t, f.Daemon, "other", []string{otherAddress})
}

// wantState wants the record of an owner to have a state, which may be none.
func (f pluginFixture) wantState(t *testing.T, owner, want string) {
	t.Helper()
	got := none
	if a := f.Attachment(t, owner); a != nil {
		got = a.State
	}
	if got != want {
		t.Errorf("the record of %s is %s; want %s", owner, got, want)
	}
}

// releaseOther releases the address of "other" until that succeeds, without waiting for the
// retries in the background, which may be first.
func (f pluginFixture) releaseOther(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "the release", func() error {
		if a := f.TryRelease(t, otherAddress); !slices.Contains([]int{http.StatusOK, http.StatusNotFound}, a.Status) {
			return fmt.Errorf("answered %s", a)
		}
		return nil
	})
}
