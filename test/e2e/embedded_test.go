package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Without the program of host-local the daemon serves as with it; with it nothing changes.
func TestNoProgramOfHostLocal(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		removePlugin(t, n)
		s := checkLifecycle(t, n, "--verify-interval=0s")
		check.Contains(t, n.Command(t, "status").Stdout, "Embedded:", "there is no program host-local in "+n.BinDir)
		doctorWithoutOptions(t, n).wantProblems(t, nil)
		held := s.AllocateFor(t, "router")
		n.InstallPlugin(t, "host-local")
		harness.Eventually(t, "the program to be named", func() error {
			if out := n.Command(t, "status").Stdout; !strings.Contains(out, "is host-local v1.10.0 of containernetworking/plugins") {
				return errorText(out)
			}
			return nil
		})
		wantAddresses(t, s.AllocateFor(t, "router"), held)
		s.Stop(t)
		s = n.Start(t, hostLocalProgram)
		wantAddresses(t, s.AllocateFor(t, "router"), held)
		s.Release(t, held...)
		wantLeaseCount(t, n, 0)
	})
}

type errorText string

func (e errorText) Error() string { return string(e) }

// An installed program that refuses less, and that pods may use, is reported.
func TestProgramDiffers(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	nw := harness.IPv4Only()
	nw.IPAM = map[string]any{"ranges": [][]map[string]string{{{"subnet": "10.15.0.0/24", "gateway": "10.15.1.1"}}}}
	n.WriteNetwork(t, "05-cilium", nw)
	n.InstallOldPlugin(t, harness.PluginsV19, "host-local")
	const text = "accepts what the daemon refuses"
	doctorWithOptions(t, n, nil).wantProblems(t, []string{"error daemon", "error plugin", "warning plugin"}, text)
	s := n.Launch(t)
	s.WaitServing(t)
	s.WaitNotReady(t, "gateway 10.15.1.1 not in network 10.15.0.0/24")
	check.Contains(t, n.Command(t, "status").Stdout, text)
}

// A killed program's empty file blocks no address.
func TestEmptyLeaseIsFree(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		s.AllocateFor(t, "router")
		putLease(t, n, "10.15.0.77", "")
		s.TryRestore(t, "10.15.0.77", "ingress").WantStatus(t, 200)
		wantLeased(t, n, "10.15.0.77")
		doctorWithoutOptions(t, n).wantProblems(t, nil)
	})
}

// A power loss brings leases back whose release was answered, and leaves those of containers that no record has. The
// first start after it releases them, and not those that others may use.
//
//evidence:design/reliability the store has leases without a record
func TestLeftoversOfReboot(t *testing.T) {
	t.Parallel()
	n, pods := podNode(t)
	s := n.Start(t)
	router := s.AllocateFor(t, "router")
	pods.Add(t, "kept")
	putLease(t, n, "10.15.0.77", strings.TrimSpace(n.Command(t, "id", "ghost").Stdout)+"\r\neth0")
	putLease(t, n, "10.15.0.78", "pod-before-the-boot\r\neth0")
	putLease(t, n, "10.15.0.79", "pod-of-this-boot\r\neth0")
	for _, ip := range []string{"10.15.0.77", "10.15.0.78"} {
		check.Must(t, os.Chtimes(storeFile(n, ip), time.Time{}, time.Unix(0, 0)))
	}
	s.Kill(t)
	s = n.Start(t) // in the same boot nothing is known to have ended
	wantLeased(t, n, append(router, "10.15.0.77", "10.15.0.78", "10.15.0.79")...)
	s.Kill(t)

	n.Reboot(t)
	s = n.Start(t)
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	harness.Eventually(t, "the container of before to be released", func() error {
		if ids := n.Leases(t); len(ids) != len(router)+1 {
			return errorText(strings.TrimSpace(n.Command(t, "list").Stdout))
		}
		return nil
	})
	wantLeased(t, n, append(router, "10.15.0.79")...)
	check.Must(t, os.Remove(storeFile(n, "10.15.0.79")))
	s.WaitLog(t, "Released a lease of the previous boot that has no record", "pod-before-the-boot")
}
