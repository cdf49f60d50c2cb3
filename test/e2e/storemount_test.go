package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Trap: leases in the container's own file system are lost with it. Here the root file system of
// the machine acts as the container's, and /dev/shm as the mounted directory of the host.
func TestStoreNotMountedInPod(t *testing.T) {
	t.Parallel()
	mounted, err := os.MkdirTemp("/dev/shm", "dip-")
	if err != nil {
		harness.Skipf(t, "a file system besides the root is needed: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(mounted) })
	n := harness.NewNode(t)
	n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
	own := "/" + filepath.Base(n.Dir) + "-leases"
	network := func(dir string) {
		n.StoreDir = dir
		n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
	}
	network(own)
	s := n.Launch(t)
	s.WaitServing(t)
	a, ready := s.TryAllocate(t, harness.Request{Owner: "router"}), s.Ready()
	a.WantError(t, http.StatusBadGateway, own, "ipam.dataDir", "mounted", "05-cilium")
	wantNotReady(t, ready, own, "ipam.dataDir", "mounted", "05-cilium")
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("%s: %v; want the plugin not called", own, err)
	}
	network(mounted)
	s.WaitReady(t)
	s.AllocateFor(t, "router")
	s.WaitConsistent(t)
	s.Stop(t)
}

// Without overlayfs the container's root is on the same device as the host's directories, so the
// device number does not show whether a directory is mounted.
func TestStoreMountedFromRootDevice(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "--mount", "true").Run(); err != nil {
		harness.Skipf(t, "a mount namespace cannot be created (root and unshare are needed): %v", err)
	}
	n := harness.NewNode(t)
	n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
	n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
	check.Must(t, os.MkdirAll(n.StoreDir, 0o755))
	n.Wrapper = []string{"unshare", "--mount", "sh", "-ec", `mount --bind "$1" "$1"; shift; exec "$@"`, "sh", n.StoreDir}
	s := n.Start(t)
	s.AllocateFor(t, "router")
	s.WaitConsistent(t)
	s.Stop(t)
}
