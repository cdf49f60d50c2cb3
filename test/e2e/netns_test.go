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
	n, plugin := scriptedNode(t, "scripted", ranges())
	n.Wrapper = withoutSysAdmin(t)
	s := n.Launch(t, "--enable-ipv6=false", "--cni-netns=ephemeral")
	s.WaitServing(t)
	var unready error
	harness.Eventually(t, "every part to say whether it is ready", func() error {
		if unready = s.Ready(); unready == nil || !strings.Contains(unready.Error(), "--cni-netns") || strings.Contains(unready.Error(), "does not answer") {
			return fmt.Errorf("it says %v", unready)
		}
		return nil
	})
	// Nobody asks whether the state folder can be written from here on.
	before := n.Snapshot(t)
	a := s.TryAllocate(t, harness.Request{Owner: "router"})
	before.WantSame(t, n.Snapshot(t))
	for _, says := range []string{"CAP_SYS_ADMIN", "scripted", "pods", "--cni-netns"} {
		if a.Status != http.StatusBadGateway || !strings.Contains(string(a.Body), says) {
			t.Errorf("answered %s; want 502 and %q", a, says)
		}
		if unready == nil || !strings.Contains(unready.Error(), says) {
			t.Errorf("health says %v; want it not to be ready and to say %q", unready, says)
		}
	}
	if list := s.List(t); len(list) != 0 {
		t.Errorf("the list has %+v; want nothing", list)
	}
	wantCalls(t, plugin)
	s.Stop(t)
}

func TestEphemeralNetNS(t *testing.T) {
	t.Parallel()
	n, _ := scriptedNode(t, "scripted", ranges())
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root may make network namespaces")
	}
	s := n.Start(t, "--enable-ipv6=false", "--cni-netns=ephemeral")
	s.Release(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses()...)
}

// withoutSysAdmin is a command that takes CAP_SYS_ADMIN from what it runs. Whoever
// is not root does not have it.
func withoutSysAdmin(t *testing.T) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		harness.Skipf(t, "root cannot be without CAP_SYS_ADMIN: %v; install util-linux", err)
	}
	return []string{setpriv, "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"}
}
