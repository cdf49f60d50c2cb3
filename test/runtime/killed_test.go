package runtime

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// After its restart containerd lists the sandboxes in whose ADD it was killed, so the kubelet ends them.
func TestKillOfContainerd(t *testing.T) {
	const sandboxes = 3
	n := newNode(t)
	n.configure(t, n.through(n.hostLocal(smallRange)), "later")
	n.startContainerd(t)
	n.Start(t)
	ended, gate := n.holdADDs(t, sandboxes)
	n.containerd.End(syscall.SIGKILL)
	check.Error(t, errors.Join(<-ended...))
	check.Must(t, os.Remove(gate))

	n.startContainerd(t)
	reported, err := n.leases(t.Context())
	check.Must(t, err)
	check.Equal(t, "sandboxes in containerd's list", len(reported), sandboxes)
	for _, l := range reported {
		check.Must(t, errors.Join(n.stop(t.Context(), l.ContainerID), n.remove(t.Context(), l.ContainerID)))
	}
	n.waitConsistent(t, 0)
}
