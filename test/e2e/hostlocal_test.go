package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// verifyByCheck returns the flag with which addresses of host-local are verified by its CHECK.
func verifyByCheck(t *testing.T, n *harness.Node) string {
	t.Helper()
	builtIn, err := os.ReadFile("../../internal/plugin/profile/profiles/host-local.json")
	check.Must(t, err)
	return "--plugin-profile=" + writeProfile(t, n, strings.Replace(string(builtIn), `"host-local-leases"`, `"none"`, 1))
}

func TestIPv6Only(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Subnets: []string{"fd00:15::/112"}})
	n.Flags = []string{"--enable-ipv4=false"}
	checkLifecycle(t, n, "--verify-interval=0s")
}

func TestHostLocalOfPlugins14(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		n.InstallOldPlugin(t, harness.PluginsV14, "host-local")
		s := checkLifecycle(t, n, "--verify-interval=0s", hostLocalProgram)
		if got := s.Health(t).DelegatedIPAM.Pools[0].CNIVersion; got != "1.0.0" {
			t.Errorf("the CNI version is %s; want 1.0.0, its highest", got)
		}
	})
}

// host-local v1.10.0 refuses what v1.9.1 accepts, also for CHECK and DEL. Readiness and doctor name the line,
// nothing is lost, and all is released with the corrected file, or by the earlier version.
func TestHostLocalRefusesConfig(t *testing.T) {
	t.Parallel()
	nw := harness.DualStack()
	nw.IPAM = map[string]any{"ranges": [][]map[string]string{{{"subnet": "10.15.0.0/24"}}, {{"subnet": "fd00:15::/112", "gateway": "fe80::1"}}}}
	const reason = "gateway fe80::1 not in network fd00:15::/112"
	for name, byCheck := range map[string]bool{"verified by lookup": false, "verified by CHECK": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, nw)
			n.Flags = []string{"--verify-interval=0s", hostLocalProgram}
			status, remedy := http.StatusCreated, func() { n.WriteNetwork(t, "05-cilium", harness.DualStack()) }
			if byCheck { // whether the plugin accepts the configuration is not known then
				n.Flags = append(n.Flags, verifyByCheck(t, n))
				status, remedy = http.StatusBadGateway, func() { n.InstallOldPlugin(t, harness.PluginsV19, "host-local") }
			}
			n.InstallOldPlugin(t, harness.PluginsV19, "host-local")
			s := n.Start(t)
			router, health := s.AllocateFor(t, "router"), s.AllocateFor(t, "health")
			n.InstallPlugin(t, "host-local")
			if !byCheck {
				file := filepath.Join(n.ConfDir, "05-cilium.conflist")
				data, err := os.ReadFile(file)
				check.Must(t, err)
				before, _, _ := strings.Cut(string(data), "fe80::1")
				text := fmt.Sprintf("plugin host-local refuses the configuration %s:%d: invalid range set 1: %s", file, 1+strings.Count(before, "\n"), reason)
				s.WaitNotReady(t, text)
				doctorWithoutOptions(t, n).wantProblems(t, []string{"error daemon", "error plugin"}, text, "correct the file")
			}
			s.Stop(t)
			s = n.Launch(t)
			s.WaitServing(t)
			s.TryAllocate(t, harness.Request{Owner: "ingress"}).WantError(t, http.StatusBadGateway, reason)
			s.TryAllocate(t, harness.Request{Owner: "router"}).WantStatus(t, status)
			if a := wantState(t, s, "router", "held"); a.Lost {
				t.Errorf("%+v is lost", a)
			}
			s.TryRelease(t, health[0]).WantStatus(t, http.StatusOK)
			s.TryRelease(t, health[1]).WantError(t, http.StatusInternalServerError, reason)
			wantLeased(t, n, append(router, health...)...)

			remedy()
			s.WaitReady(t)
			wantAddresses(t, s.AllocateFor(t, "router"), router)
			s.Release(t, router...)
			waitReleased(t, s, "health")
			waitReleased(t, s, "ingress")
			wantLeaseCount(t, n, 0)
		})
	}
}

// checkLifecycle allocates, verifies, restarts, reacquires and releases.
func checkLifecycle(t *testing.T, n *harness.Node, flags ...string) *harness.Daemon {
	t.Helper()
	s := n.Start(t, flags...)
	held := s.AllocateFor(t, "router")
	s.TryRestore(t, held[0], "router").WantStatus(t, http.StatusOK)
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	s.Kill(t)

	s = n.Start(t, flags...)
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	n.WipeStore(t)
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	wantLeased(t, n, held...)
	if c := s.Health(t).DelegatedIPAM.Counters; c["lost"] == 0 || c["reacquired"] == 0 {
		t.Errorf("counters are %v; want the loss found by CHECK and reacquired", c)
	}
	s.Release(t, held...)
	wantLeaseCount(t, n, 0)
	return s
}

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

// storeFile returns the path of the file of an address of the network "pods".
func storeFile(n *harness.Node, ip string) string { return filepath.Join(n.StoreDir, "pods", ip) }

// putLease writes the file of an address as host-local does.
func putLease(t *testing.T, n *harness.Node, ip, content string) {
	t.Helper()
	check.Must(t, os.WriteFile(storeFile(n, ip), []byte(content), 0o600))
}

func TestLostStoreWhileStopped(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := map[string][]string{}
		for _, owner := range []string{"router", "health", "ingress"} {
			held[owner] = s.AllocateFor(t, owner)
		}
		s.Stop(t)
		n.WipeStore(t)

		s = n.Start(t)
		a := s.TryAllocate(t, harness.Request{Owner: "new"}) // before the store has the held addresses again
		for _, ips := range held {
			if a.Status == http.StatusCreated {
				wantDisjoint(t, a.Allocation(t).Addresses(), ips)
			}
		}
		s.WaitConsistent(t)
		for _, ips := range held {
			wantDisjoint(t, s.AllocateFor(t, "new"), ips)
		}
		for owner, want := range held {
			wantLeased(t, n, want...)
			wantAddresses(t, s.AllocateFor(t, owner), want)
		}
	})
}

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
