package e2e

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// asContainer returns a wrapper that runs a command as a container of the manifests does: as root
// without capabilities, in one supplementary group.
func asContainer(t *testing.T, group string) []string {
	t.Helper()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Geteuid() != 0 {
		harness.Skipf(t, "root and setpriv (util-linux) are needed to drop capabilities: %v", err)
	}
	return []string{setpriv, "--bounding-set=-all", "--inh-caps=-all", "--groups=" + group, "--"}
}

func TestSocketGroupWithoutCapabilities(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Wrapper = asContainer(t, "60914")

	refused := n.Launch(t, "--socket-group=60915")
	reason := []string{"60915", "not a member", "CAP_CHOWN", "supplementalGroups", "runAsGroup", "SupplementaryGroups="}
	wantStartFailure(t, refused, reason...)
	// doctor reports the same before the start.
	line := slices.Concat(n.Wrapper, []string{harness.Binary(t)}, n.ServeArgs("--socket-group=60915"))
	line[len(n.Wrapper)+1] = "doctor"
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err == nil {
		t.Errorf("doctor ended with status 0:\n%s", out)
	}
	for _, text := range reason {
		if !strings.Contains(string(out), text) {
			t.Errorf("doctor lacks %q:\n%s", text, out)
		}
	}

	s := n.Start(t, "--socket-group=60914")
	var stat unix.Stat_t
	if err := unix.Lstat(n.Socket, &stat); err != nil || stat.Gid != 60914 {
		t.Errorf("the group of the socket is %d, %v; want 60914", stat.Gid, err)
	}
	s.AllocateFor(t, "router")
	if got := n.Command(t, "doctor"); strings.Contains(got.Stdout, "cannot be set") {
		t.Errorf("doctor of a running sidecar:\n%s", got.Stdout)
	}
}
