package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// pluginFixture is a sidecar with the scripted plugin, and an owner "other" that holds an address.
type pluginFixture struct {
	*harness.Sidecar
	node   *harness.Node
	plugin harness.Scripted
	// binary is the path of the plugin.
	binary string
}

// otherAddress is the address of the owner "other": the first one that the plugin allocates.
const otherAddress = "10.15.0.2"

// newPluginFixture starts a sidecar over a plugin type: host-local, which has a profile, or one
// without a profile.
func newPluginFixture(t *testing.T, pluginType string, flags ...string) pluginFixture {
	t.Helper()
	n := harness.NewNode(t)
	f := pluginFixture{node: n, binary: filepath.Join(n.BinDir, pluginType)}
	harness.Must(t, os.RemoveAll(f.binary))
	f.plugin = n.InstallScripted(t, pluginType)
	n.Store = func() ([]oracle.Lease, error) { return f.plugin.Leases("pods") }
	n.WriteNetwork(t, "05-cilium", harness.Network{
		Name: "pods", CNIVersion: "1.0.0", Plugin: pluginType, IPAM: map[string]any{"subnet": "10.15.0.0/24"},
	})
	f.Sidecar = n.Start(t, append([]string{"--enable-ipv6=false"}, flags...)...)
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
	harness.Must(t, os.Rename(f.binary, away))
	if fault.file != nil {
		harness.Must(t, os.WriteFile(f.binary, []byte(fault.file.content), fault.file.mode))
	}
	return func() { harness.Must(t, os.Rename(away, f.binary)) }
}

// wantOther wants the owner "other" to hold its address.
func (f pluginFixture) wantOther(t *testing.T) {
	t.Helper()
	if got := f.AllocateFor(t, "other"); !slices.Equal(got, []string{otherAddress}) {
		t.Errorf("other has %q; want %s", got, otherAddress)
	}
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
		switch a := f.TryRelease(t, otherAddress); a.Status {
		case http.StatusOK, http.StatusNotFound:
			return nil
		default:
			return fmt.Errorf("answered %s", a)
		}
	})
}
