package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// laterPlugin is a chained plugin whose ADD fails after the test has removed the file "gate" beside it.
const laterPlugin = `#!/bin/sh
[ "$CNI_COMMAND" = ADD ] || exit 0
touch "$0.reached.$CNI_CONTAINERID"
while [ -e "$0.gate" ]; do sleep 0.05; done
echo '{"cniVersion": "1.0.0", "code": 100, "msg": "refused by a later plugin"}'
exit 1
`

// holdADDs starts sandboxes, and returns when all their ADDs have reached the later plugin, with the results
// and the file that holds them there.
func (n *node) holdADDs(t *testing.T, sandboxes int) (ended <-chan []error, gate string) {
	t.Helper()
	later := filepath.Join(n.BinDir, "later")
	n.InstallScript(t, "later", laterPlugin)
	check.Must(t, os.WriteFile(later+".gate", nil, 0o600))
	results := make(chan []error, 1)
	go func() { results <- n.runAll(t.Context(), sandboxes) }()
	cluster.MustEventually(t, "all ADDs to reach the later plugin", convergeTimeout, func() error {
		if reached, _ := filepath.Glob(later + ".reached.*"); len(reached) != sandboxes {
			return fmt.Errorf("%d have", len(reached))
		}
		return nil
	})
	return results, later + ".gate"
}

// forget lets containerd forget sandboxes: a later plugin fails the ADD, and the DEL meets no daemon.
func forget(t *testing.T, n *node, s *harness.Daemon, sandboxes int) {
	t.Helper()
	ended, gate := n.holdADDs(t, sandboxes)
	s.Kill(t)
	check.Must(t, os.Remove(gate))
	for _, err := range <-ended {
		check.Error(t, err, "refused by a later plugin")
	}
	reported, err := n.leases(t.Context())
	check.Must(t, err)
	check.Equal(t, "sandboxes in containerd's list", len(reported), 0)
	check.Equal(t, "leases before the DELs", len(n.Leases(t)), sandboxes)
}

// containerd calls the DEL of a failed ADD once. The daemon that was away carries it out.
//
//evidence:design/reliability a DEL while the daemon is away
func TestForgottenSandboxes(t *testing.T) {
	const sandboxes = 5
	n := newNode(t)
	n.configure(t, n.through(n.hostLocal(smallRange)), "later")
	n.startContainerd(t)
	forget(t, n, n.Start(t), sandboxes)
	check.Equal(t, "DELs in the spool", len(n.spooled()), sandboxes)

	n.Start(t)
	n.waitConsistent(t, 0)
}

// Without a spool the DEL fails, and the lease stays until the missing network namespace counts.
func TestForgottenSandboxWithoutSpool(t *testing.T) {
	n := newNode(t)
	ipam := n.through(n.hostLocal(smallRange))
	ipam["spool"] = filepath.Join(n.Dir, "missing")
	n.configure(t, ipam, "later")
	n.startContainerd(t)
	forget(t, n, n.Start(t), 1)
	check.Equal(t, "DELs in the spool", len(n.spooled()), 0)
	log, err := os.ReadFile(filepath.Join(n.logs, "containerd.log"))
	check.Must(t, err)
	check.Contains(t, string(log), "Failed to destroy network for sandbox", "the DEL cannot be left for it")

	s := n.Start(t)
	check.Equal(t, "listed", len(s.List(t)), 1)
	s.Stop(t)
	n.Start(t, "--missing-netns-release-delay=1s")
	n.waitConsistent(t, 0)
}
