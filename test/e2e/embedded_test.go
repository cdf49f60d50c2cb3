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
