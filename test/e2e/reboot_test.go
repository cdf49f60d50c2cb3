package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// A lease file that is removed and created again could be another pod's in between.
func TestRebootKeepsLeaseFile(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	lease := filepath.Join(n.StoreDir, "pods", held[0])
	before := stat(t, lease)
	s.Kill(t)

	n.Reboot(t)
	s = n.Start(t)
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	after := stat(t, lease)
	if !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the lease file is of %s and was of %s: it was removed and created again", after.ModTime(), before.ModTime())
	}
}

func TestRebootRemoteStore(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	plugin := n.InstallScripted(t, "calico-ipam")
	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "calico-ipam", IPAM: map[string]any{
		"subnet": "10.15.0.0/24", "cooldown": true,
	}})
	n.Flags = []string{"--enable-ipv6=false"}
	s := n.Start(t)
	held := map[string][]string{}
	for _, owner := range []string{"router", "health"} {
		held[owner] = s.AllocateFor(t, owner)
	}
	before := plugin.Verbs(t)
	s.Kill(t)

	n.Reboot(t)
	s = n.Start(t)
	for owner, ips := range held {
		wantAddresses(t, s.AllocateFor(t, owner), ips)
	}
	s.Stop(t)
	since := plugin.Verbs(t)[len(before):]
	if slices.Contains(since, "DEL") || slices.Contains(since, "ADD") {
		t.Errorf("since the reboot the plugin was called for %q; want neither DEL nor ADD", since)
	}
	wantAddresses(t, plugin.Holds(t), append(held["router"], held["health"]...))
}

func stat(t *testing.T, file string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(file)
	check.Must(t, err)
	return info
}
