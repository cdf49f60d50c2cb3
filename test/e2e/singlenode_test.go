package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// mountConfigMap moves the network of a node into a directory as the kubelet makes it for a
// ConfigMap volume, and returns the path of its file.
func mountConfigMap(t *testing.T, n *harness.Node) string {
	t.Helper()
	const present = "..2026_11_22_15_04_05.0123456789"
	volume := t.TempDir()
	check.Must(t, os.Mkdir(filepath.Join(volume, present), 0o755))
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	check.Must(t, os.Rename(filepath.Join(n.ConfDir, "10-pods.conflist"), filepath.Join(volume, present, "pods.conflist")))
	check.Must(t, os.Symlink(present, filepath.Join(volume, "..data")))
	check.Must(t, os.Symlink("..data/pods.conflist", filepath.Join(volume, "pods.conflist")))
	return filepath.Join(volume, "pods.conflist")
}

// host-local on every node with the range of a ConfigMap would allocate each address on every node.
// Held addresses are served, and can be released.
func TestSharedRange(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	file := mountConfigMap(t, n)
	s := n.Start(t, "--enable-ipv6=false", "--cni-conf-file="+file, "--single-node")
	router := s.AllocateFor(t, "router")
	s.Stop(t)
	s = n.Launch(t, "--enable-ipv6=false", "--cni-conf-file="+file)
	s.WaitServing(t)
	texts := []string{file, "host-local", "ConfigMap", "two nodes", "--single-node"}
	wantNotReady(t, s.Ready(), texts...)
	s.TryAllocate(t, harness.Request{Owner: "health"}).WantError(t, http.StatusBadGateway, texts...)
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	s.Release(t, router...)
	if left := n.Leases(t); len(left) > 0 {
		t.Errorf("%v are still leased", left)
	}
	if out := n.Command(t, "doctor", "--enable-ipv6=false", "--cni-conf-file="+file); out.ExitCode != 1 {
		t.Errorf("doctor: exit status %d; want 1\n%s", out.ExitCode, out.Stdout)
	}
}
