package e2e

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// A boot ID that reads differently, as in a container of LXC, releases no container whose network
// namespace exists.
//
//evidence:design/reliability the boot ID changes while pods run
func TestBootIDChangesWhileContainersRun(t *testing.T) {
	t.Parallel()
	n, pods := podNode(t)
	s := n.Start(t)
	living := harness.NewNetNS(t)
	ips := pods.Add(t, living)
	ended := pods.Add(t, "ended")
	s.Kill(t)
	n.Reboot(t)
	s = n.Start(t)
	waitReleased(t, s, "cni/ended/eth0")
	wantState(t, s, "cni/"+living+"/eth0", "held")
	s.WaitLog(t, "The boot ID changed", "released=1", "kept=1")
	wantIDs(t, n, living)
	wantDisjoint(t, pods.Add(t, "next"), ips)
	wantDisjoint(t, ended, ips)
	s.Stop(t)
	s = n.Start(t)
	wantState(t, s, "cni/"+living+"/eth0", "held")
	call(t, pods, "CHECK", living)
	call(t, pods, "DEL", living)
	wantIDs(t, n, "next")
}
