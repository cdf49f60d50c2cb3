package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// silentDelegator runs host-local from CNI_PATH, and exits without output if it is not there, as kube-node does.
const silentDelegator = `#!/bin/sh
[ ! -x "$CNI_PATH/host-local" ] || exec "$CNI_PATH/host-local"
`

// strictDEL refuses a DEL of a container that holds nothing, as weave-ipam and centralip do.
const strictDEL = `#!/bin/sh
if [ "$CNI_COMMAND" = DEL ] && ! grep -qr "$CNI_CONTAINERID" "${0%/*}/../store"; then
	printf '{"cniVersion": "0.3.1", "code": 100, "msg": "no addresses for %s"}' "$CNI_CONTAINERID"
	exit 1
fi
exec "${0%/*}/host-local"
`

// A plugin without a profile works, and the proposal of profile try is accepted: real programs under a name that the
// daemon does not know.
func TestUnlistedPlugin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		install    func(t *testing.T, n *harness.Node)
		delNotHeld string
	}{
		"host-local v1.0.1": {func(t *testing.T, n *harness.Node) {
			n.InstallOldPlugin(t, harness.PluginsV10, "host-local")
			check.Must(t, os.Rename(filepath.Join(n.BinDir, "host-local"), filepath.Join(n.BinDir, "my-ipam")))
		}, "<nil>"},
		"a delegator without VERSION": {func(t *testing.T, n *harness.Node) { n.InstallScript(t, "my-ipam", silentDelegator) }, "<nil>"},
		"a DEL that is refused":       {func(t *testing.T, n *harness.Node) { n.InstallScript(t, "my-ipam", strictDEL) }, "map[codes:[100] message:no addresses for]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t)
			c.install(t, n)
			n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "my-ipam", IPAM: map[string]any{
				"dataDir": n.StoreDir, "ranges": [][]map[string]string{{{"subnet": "10.15.0.0/29", "rangeEnd": "10.15.0.4"}}},
			}})
			s := n.Start(t)
			var held []string
			for _, owner := range []string{"router", "health", "ingress"} {
				held = append(held, s.AllocateFor(t, owner)...)
			}
			s.TryAllocate(t, harness.Request{Owner: "default/full"}).WantError(t, http.StatusBadGateway, "no IP addresses available")
			s.WaitConsistent(t)
			wantLeaseCount(t, n, len(held))
			s.Release(t, held...)
			s.WaitConsistent(t)
			wantLeaseCount(t, n, 0)
			wantProposal(t, n, c.delNotHeld)
			wantLeaseCount(t, n, 0)
		})
	}
}

// wantProposal wants the facts of host-local, except that of delNotHeld.
func wantProposal(t *testing.T, n *harness.Node, delNotHeld string) {
	t.Helper()
	r, out := try(t, n, "my-ipam")
	for field, want := range map[string]string{
		"repeatedAdd": "refused", "verifyBy": "check", "checkProves": "presence", "delNotHeld": delNotHeld,
		"lost": "map[codes:[999] message:host-local: Failed to find address added by container]", "requests": "[args.cni.ips CNI_ARGS]",
	} {
		if got := fmt.Sprint(r.Proposal[field]); got != want {
			t.Errorf("profile try proposes %s %s, want %s\n%s", field, got, want, out.Stderr)
		}
	}
	wantDifferences(t, n, "my-ipam", nil)
}
