package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

const (
	// realPlugins names the directory of the real host-local, static and dhcp.
	realPlugins = "DELEGATED_IPAM_TEST_PLUGINS"
	// oldPlugins names the directory of host-local of plugins v1.4.0, which supports CNI up to 1.0.0.
	oldPlugins = "DELEGATED_IPAM_TEST_OLD_PLUGINS"
)

const (
	// dualStack and largeStore are ipam sections of host-local. DIR is the directory of its state.
	dualStack  = `{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]}`
	largeStore = `{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.1.0.0/16"}],[{"subnet":"fd00::/112"}]]}`
)

// newReal returns a fixture of a real plugin.
func newReal(t *testing.T, ipam string, change ...func(*Options)) *fixture {
	t.Helper()
	return newRealFrom(t, realPlugins, ipam, change...)
}

// newRealFrom returns a fixture of a plugin in the directory that an environment variable names.
func newRealFrom(t *testing.T, variable, ipam string, change ...func(*Options)) *fixture {
	t.Helper()
	bin := pluginDir(t, variable)
	f := &fixture{t: t, bin: bin, dir: t.TempDir(), profiles: embeddedProfiles(t)}
	f.opts = Options{BinDirs: []string{bin}, LockFile: filepath.Join(f.dir, "calls.lock"), IfName: "eth0", Timeout: 30 * time.Second}
	f.configure(ipam, `{}`)
	f.start(change...)
	return f
}

func pluginDir(t testing.TB, variable string) string {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" {
		t.Skipf("%s is not set; it names a directory of real plugins (make plugins)", variable)
	}
	return dir
}

// configure sets the ipam section and the capabilities of the network.
func (f *fixture) configure(ipam, capabilities string) {
	f.network = networkOf("net", `{"type":"cilium-cni","capabilities":`+capabilities+`,"ipam":`+strings.ReplaceAll(ipam, "DIR", f.dir)+`}`)
}

// newRealBenchmark returns a runner with the real host-local, a call, and the directory of the leases.
func newRealBenchmark(b *testing.B, ipam string) (*Runner, call.Call, string) {
	b.Helper()
	bin, data := pluginDir(b, realPlugins), b.TempDir()
	r, err := New(Options{BinDirs: []string{bin}, LockFile: filepath.Join(data, "calls.lock"), IfName: "eth0", Timeout: time.Minute, Profiles: profile.Load})
	if err != nil {
		b.Fatal(err)
	}
	n := networkOf("net", `{"ipam":`+strings.ReplaceAll(ipam, "DIR", data)+`}`)
	inv, err := r.NewInvocation(b.Context(), n, "id", "owner")
	if err != nil {
		b.Fatal(err)
	}
	return r, call.Call{Invocation: inv}, filepath.Join(data, "net")
}

// leaseDir returns the directory of host-local's lease files.
func (f *fixture) leaseDir() string { return filepath.Join(f.dir, "net") }

// wantLeases fails the test if the real host-local does not have exactly the lease files.
func (f *fixture) wantLeases(want ...string) {
	f.t.Helper()
	entries, err := os.ReadDir(f.leaseDir())
	if err != nil {
		f.t.Fatal(err)
	}
	var held []string
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err == nil {
			held = append(held, e.Name())
		}
	}
	if !slices.Equal(held, want) {
		f.t.Errorf("the plugin's directory holds %v, want %v", held, want)
	}
}

// writeLease writes a file into the store of the real host-local.
func (f *fixture) writeLease(name, text string) {
	f.t.Helper()
	if err := errors.Join(os.MkdirAll(f.leaseDir(), 0o755), os.WriteFile(filepath.Join(f.leaseDir(), name), []byte(text), 0o600)); err != nil {
		f.t.Fatal(err)
	}
}

// removeLease removes a file from the store of the real host-local.
func (f *fixture) removeLease(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.leaseDir(), name)); err != nil {
		f.t.Fatal(err)
	}
}

// wrapHostLocal returns a fixture of a shell script in place of host-local. In the script HOST_LOCAL
// is the path of the real one, and HERE the directory of its state.
func wrapHostLocal(t *testing.T, script string, change ...func(*Options)) *fixture {
	t.Helper()
	bin := t.TempDir()
	f := newReal(t, dualStack, append(change, func(o *Options) { o.BinDirs = []string{bin} })...)
	text := fmt.Sprintf("#!/bin/sh\nHERE=%s\nHOST_LOCAL=%s/host-local\n%s\n", f.dir, f.bin, script)
	if err := os.WriteFile(filepath.Join(bin, "host-local"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return f
}

// addInStore runs an ADD whose result a lookup must find afterwards.
func (f *fixture) addInStore(c call.Call) call.Result {
	f.t.Helper()
	got := f.add(c)
	if !got.InStore {
		f.t.Fatalf("the result of ADD was not found in the store: %+v", f.runner.Verification(c.Invocation))
	}
	return got
}
