package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Trap: a container's own file system is not the host's. Here the root of this
// machine stands for it, and a mount of the kernel's for the host's folder.
func TestStoreNotMountedInPod(t *testing.T) {
	t.Parallel()
	mounted, err := os.MkdirTemp("/dev/shm", "dip-")
	if err != nil {
		t.Skipf("a folder on a file system that is not the root's is needed: %v", err)
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
	a, unready := s.TryAllocate(t, harness.Request{Owner: "router"}), s.Ready()
	for _, says := range []string{own, "ipam.dataDir", "mounted", "05-cilium"} {
		if a.Status != http.StatusBadGateway || !strings.Contains(string(a.Body), says) {
			t.Errorf("answered %s; want 502 and %q", a, says)
		}
		if !strings.Contains(fmt.Sprint(unready), says) {
			t.Errorf("health says %v; want it not to be ready and to say %q", unready, says)
		}
	}
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("%s: %v; want the plugin not to have been asked", own, err)
	}
	network(mounted)
	s.WaitReady(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	s.WaitConsistent(t)
	s.Stop(t)
}

// A container runtime without overlays has the container's root on the host's own
// device, so the device alone would call every folder the container's own.
func TestStoreMountedFromRootDevice(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "--mount", "true").Run(); err != nil {
		harness.Skipf(t, "a mount namespace cannot be made here (root and unshare are needed): %v", err)
	}
	n := harness.NewNode(t)
	n.Env = append(n.Env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
	n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
	harness.Must(t, os.MkdirAll(n.StoreDir, 0o755))
	n.Wrapper = []string{"unshare", "--mount", "sh", "-ec", `mount --bind "$1" "$1"; shift; exec "$@"`, "sh", n.StoreDir}
	s := n.Start(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	s.WaitConsistent(t)
	s.Stop(t)
}
