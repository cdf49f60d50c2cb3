package e2e

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

//evidence:design/reliability the old pod still runs while the new one starts
func TestSecondInstanceWaits(t *testing.T) {
	t.Parallel()
	// In a pod each daemon has PID 1 and the host name of the node, so both locks name the pod.
	const pod = "pod kube-system/delegated-ipam-x7k2p since 20"
	n := nodeWith(t, harness.DualStack())
	n.Env = append(n.Env, "K8S_POD_NAME=kube-system/delegated-ipam-x7k2p")
	first := n.Start(t)
	first.WaitLog(t, "podName=kube-system/delegated-ipam-x7k2p")
	held := first.AllocateFor(t, "router")
	doctorWithOptions(t, n, nil, "--socket-path="+n.Socket+"2", "--state-dir="+n.StateDir+"2").
		wantProblems(t, []string{"error daemon", "error plugin"}, pod, n.StateDir)

	waiting := *n
	waiting.Socket += "2"
	second := waiting.Launch(t)
	second.WaitLog(t, "waiting for the state directory", n.StateDir, "another process holds: "+pod, strconv.Itoa(first.PID()))
	for _, kind := range []string{"startup", "ready", "live"} {
		wantProbe(t, &waiting, kind, waiting.Socket)
	}
	wantAddresses(t, first.AllocateFor(t, "router"), held)
	first.Stop(t)

	second.WaitReady(t)
	wantAddresses(t, second.AllocateFor(t, "router"), held)
	second.WaitConsistent(t)
}

// As a container of the manifests: root without capabilities, in one supplementary group.
func TestSocketGroupWithoutCapabilities(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Geteuid() != 0 {
		harness.Skipf(t, "root and setpriv (util-linux) are needed to drop capabilities: %v", err)
	}
	n.Wrapper = []string{setpriv, "--bounding-set=-all", "--inh-caps=-all", "--groups=60914", "--"}

	refused := n.Launch(t, "--socket-group=60915")
	refused.WantStartFailure(t, "60915", "not a member", "CAP_CHOWN", "supplementalGroups", "runAsGroup", "SupplementaryGroups=")

	s := n.Start(t, "--socket-group=60914")
	var stat unix.Stat_t
	if err := unix.Lstat(n.Socket, &stat); err != nil || stat.Gid != 60914 {
		t.Errorf("the group of the socket is %d, %v; want 60914", stat.Gid, err)
	}
	s.AllocateFor(t, "router")
	if got := n.Command(t, "doctor"); strings.Contains(got.Stdout, "cannot be set") {
		t.Errorf("doctor of a running daemon:\n%s", got.Stdout)
	}
}
