package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// dualStack is an ipam section of host-local. DIR is the directory of its state.
const dualStack = `{"type":"host-local","dataDir":"DIR",` + twoRanges + `}`

// newReal returns a fixture of a real plugin.
func newReal(t *testing.T, ipam string, change ...func(*Options)) *fixture {
	t.Helper()
	return newRealOf(t, "", ipam, change...)
}

// newRealOf is newReal for an older version of the plugins (harness.PluginsV19); empty for the newest.
func newRealOf(t *testing.T, version, ipam string, change ...func(*Options)) *fixture {
	t.Helper()
	variable := harness.EnvPlugins
	if version != "" {
		variable = harness.EnvOldPlugins
	}
	bin := filepath.Join(os.Getenv(variable), version)
	if bin == version {
		t.Skipf("%s is not set; it names a directory of real plugins (make plugins)", variable)
	}
	f := &fixture{t: t, bin: bin, dir: t.TempDir(), profiles: embeddedProfiles(t)}
	f.opts = Options{BinDirs: []string{bin}, LockFile: filepath.Join(f.dir, "calls.lock"), IfName: "eth0", HostLocal: HostLocalProgram, Timeout: 30 * time.Second}
	f.configure(ipam, `{}`)
	f.start(change...)
	return f
}

// leaseDir returns the directory of host-local's lease files.
func (f *fixture) leaseDir() string { return filepath.Join(f.dir, "net") }

// wantLeases fails the test if the real host-local does not have exactly the lease files.
func (f *fixture) wantLeases(want ...string) {
	f.t.Helper()
	entries, err := os.ReadDir(f.leaseDir())
	check.Must(f.t, err)
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
	check.Must(f.t, errors.Join(os.MkdirAll(f.leaseDir(), 0o755), os.WriteFile(filepath.Join(f.leaseDir(), name), []byte(text), 0o600)))
}

// wrapHostLocal returns a fixture of a shell script in place of host-local. In the script HOST_LOCAL
// is the path of the real one, and HERE the directory of its state.
func wrapHostLocal(t *testing.T, script string, change ...func(*Options)) *fixture {
	t.Helper()
	bin := t.TempDir()
	f := newReal(t, dualStack, append(change, func(o *Options) { o.BinDirs = []string{bin} })...)
	text := fmt.Sprintf("#!/bin/sh\nHERE=%s\nHOST_LOCAL=%s/host-local\n%s\n", f.dir, f.bin, script)
	harness.WriteProgram(t, filepath.Join(bin, "host-local"), []byte(text))
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
