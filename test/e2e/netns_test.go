package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestEphemeralNetNSWithoutSysAdmin(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	n.Wrapper = withoutSysAdmin(t)
	s := n.Launch(t, "--enable-ipv6=false", "--cni-netns=ephemeral")
	s.WaitServing(t)
	var ready error
	harness.Eventually(t, "every check of readiness to be complete", func() error {
		if ready = s.Ready(); ready == nil || !strings.Contains(ready.Error(), "--cni-netns") || strings.Contains(ready.Error(), "not respond") {
			return fmt.Errorf("readiness is %v", ready)
		}
		return nil
	})
	// From here on no check writes to the state directory.
	before := n.Snapshot(t)
	a := s.TryAllocate(t, harness.Request{Owner: "router"})
	before.WantSame(t, n.Snapshot(t))
	a.WantError(t, http.StatusBadGateway, "CAP_SYS_ADMIN", "scripted", "pods", "--cni-netns")
	wantNotReady(t, ready, "CAP_SYS_ADMIN", "scripted", "pods", "--cni-netns")
	if list := s.List(t); len(list) != 0 {
		t.Errorf("the list has %+v; want nothing", list)
	}
	wantCalls(t, plugin)
	s.Stop(t)
}

func TestEphemeralNetNS(t *testing.T) {
	t.Parallel()
	n, _ := scriptedNode(t, "scripted", nil)
	if os.Geteuid() != 0 {
		harness.Skipf(t, "creating a network namespace needs root")
	}
	s := n.Start(t, "--enable-ipv6=false", "--cni-netns=ephemeral")
	s.Release(t, s.AllocateFor(t, "router")...)
}

// withoutSysAdmin returns a wrapper that drops CAP_SYS_ADMIN; nil if the test is not root and
// lacks it anyway.
func withoutSysAdmin(t *testing.T) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		harness.Skipf(t, "setpriv (util-linux) is needed to drop CAP_SYS_ADMIN: %v", err)
	}
	return []string{setpriv, "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"}
}
