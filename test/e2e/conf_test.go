package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// A FIFO before the configuration would block the start.
//
//evidence:operate/security a FIFO, device, or 5 GiB as option, profile or CNI configuration
func TestConfIsPipe(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	check.Must(t, unix.Mkfifo(filepath.Join(n.ConfDir, "00-first.conflist"), 0o600))
	n.Start(t).AllocateFor(t, "router")
}

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

// With a configuration that cannot give an address the daemon is not ready before the first request and
// names the reason, as doctor does. A request leaves no record.
func TestUnusableConfiguration(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ipam string
		// texts are in the findings of doctor and in readiness.
		texts []string
	}{
		"usePodCidr":               {`{"type":"host-local","subnet":"usePodCidr"}`, []string{"usePodCidr"}},
		"usePodCidr in ranges":     {`{"type":"host-local","ranges":[[{"subnet":"usePodCidr"}],[{"subnet":"usePodCidrIPv6"}]]}`, []string{"usePodCidr"}},
		"no ranges":                {`{"type":"host-local"}`, []string{"ranges"}},
		"static without addresses": {`{"type":"static"}`, []string{"static", "addresses"}},
		"no resolvConf":            {`{"type":"host-local","ranges":[[{"subnet":"10.15.0.0/24"}]],"resolvConf":"STORE/none.conf"}`, []string{"resolvConf", "none.conf"}},
		"other family":             {`{"type":"host-local","ranges":[[{"subnet":"fd00:15::/112"}]]}`, []string{"ipv6", "--enable-ipv6"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			n.InstallPlugin(t, "static")
			n.Flags = []string{"--enable-ipv6=false"}
			ipam := strings.NewReplacer("STORE", n.StoreDir, `"type":"host-local"`, `"type":"host-local","dataDir":"`+n.StoreDir+`"`).Replace(tt.ipam)
			n.WriteConf(t, "05-cilium.conflist", []byte(`{"cniVersion":"0.3.1","name":"pods","plugins":[{"type":"cilium-cni","ipam":`+ipam+`}]}`))
			texts := append(tt.texts, "05-cilium.conflist")
			doctorWithOptions(t, n, nil).wantProblems(t, []string{"error daemon", "error plugin"}, texts...)
			s := n.Launch(t)
			s.WaitServing(t)
			wantNotReady(t, s.Ready(), texts...)
			s.TryAllocate(t, harness.Request{Owner: "router"}).WantStatus(t, http.StatusBadGateway)
			wantNoAttachment(t, s, "router")

			n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
			s.WaitReady(t)
			s.AllocateFor(t, "router")
			s.WaitConsistent(t)
			s.Stop(t)
		})
	}
}

// Pods and daemon share the store: what an owner uses stays leased while a request for its other family fails.
func TestRangesOfFamilyRemoved(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	router := s.AllocateFor(t, "router")
	left := harness.DualStack()
	left.Subnets = left.Subnets[:1]
	n.WriteNetwork(t, "05-cilium", left)
	harness.Eventually(t, "the new ranges", func() error {
		if a := s.Attachment(t, "router"); a.Range != "outside" {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	s.TryAllocate(t, harness.Request{Owner: "router", Family: "ipv6"}).WantError(t, http.StatusBadGateway, "no range of that family")
	harness.Eventually(t, "the lease of "+router[0], func() error {
		if leases := fmt.Sprint(n.Leases(t)); !strings.Contains(leases, router[0]+" ") {
			return errors.New(leases)
		}
		return nil
	})
	n.ResetHistory() // the other address is outside the ranges
	wantAddresses(t, s.AllocateFor(t, "router"), router[:1])
	s.WaitConsistent(t)
}

// Under the name of a further pool the default pool would get its attachments, and keep them after their release.
func TestDefaultPoolNamedAsOther(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	blue := harness.Network{Name: "blue", Subnets: []string{"10.17.0.0/24", "fd00:17::/112"}, CNIVersion: "1.0.0"}
	n.WriteNetwork(t, "06-blue", blue)
	before := []string{"--pool=default=pods", "--pool=blue=blue"}
	s := n.Start(t, before...)
	web := s.Allocate(t, harness.Request{Owner: "web", Pool: "blue"}).Addresses()
	s.Stop(t)
	after := []string{"--ipam-default-ip-pool=blue", "--pool=blue=blue"}
	n.Launch(t, after...).WantStartFailure(t, "journal.db", `pool "blue"`, "--ipam-default-ip-pool", "release")

	s = n.Start(t, before...)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "web", Pool: "blue"}).Addresses(), web)
	if out := n.Command(t, "release", "--all", "--yes"); out.ExitCode != 0 {
		t.Fatal(out)
	}
	s.Stop(t)
	s = n.Start(t, after...)
	s.Allocate(t, harness.Request{Owner: "web", Pool: "blue"})
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
