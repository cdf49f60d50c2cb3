package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

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
