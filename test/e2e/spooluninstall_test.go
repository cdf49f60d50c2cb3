package e2e

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/spool"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// uninstall waits until the daemon that serves has carried out the DELs in the spool, then for its end.
func TestSpoolUninstallDrains(t *testing.T) {
	t.Parallel()
	n, _ := leftPod(t)
	gate := filepath.Join(n.Dir, "gate")
	n.WrapPlugin(t, "host-local", `#!/bin/sh
if [ "$CNI_COMMAND" = DEL ]; then
  until [ -e `+gate+` ]; do sleep 0.05; done
fi
exec "$0.real"`)
	s := n.Start(t)
	wantSpool(t, n, 1, 0)
	cmd := exec.Command(harness.Binary(t), uninstall(n)...)
	stderr, err := cmd.StderrPipe()
	check.Must(t, errors.Join(err, cmd.Start()))
	output := bufio.NewReader(stderr)
	for _, want := range []string{"1 DELs of containers wait in " + n.Spool(), "waiting for the end of the daemon"} {
		line, err := output.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("the command prints %q, %v; want %q", line, err, want)
		}
		check.Must(t, os.WriteFile(gate, nil, 0o600))
	}
	wantIDs(t, n)
	s.Stop(t)
	rest, err := io.ReadAll(output)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Errorf("%v\n%s", err, rest)
	}
	wantNothing(t, n)
}

// After a rollback the network is not served for pods any more. The DEL of a pod's sandbox is run by the plugin,
// which may have an address that was added without the daemon. Another container ID can be used again: without
// a record the plugin may have added it since.
func TestSpoolAfterRollback(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	nw := harness.DualStack()
	n.WriteNetwork(t, "10-pods", nw)
	store := n.Store
	bare := n.PodsOf(t, nw)
	withoutPods := n.Store
	n.Store = store
	bare.Add(t, "sandbox")
	through := n.PodsThrough(t, "10-pods", nw)
	s := n.Start(t)
	through.Add(t, "recorded")
	s.Stop(t)
	for _, id := range []string{"recorded", "never-added", "again"} {
		check.Must(t, delAway(n, through, id))
	}
	dir, err := spool.Open(n.Spool())
	check.Must(t, err)
	defer dir.Close()
	check.Must(t, dir.Put(spool.Entry{
		Network: "pods", ContainerID: "sandbox", IfName: "eth0", Args: "IgnoreUnknown=1;K8S_POD_INFRA_CONTAINER_ID=sandbox", Written: time.Now(),
	}))
	n.WriteNetwork(t, "10-pods", nw)
	bare.Add(t, "again")
	s = n.Start(t)
	waitDrained(t, n)
	wantIDs(t, n, "again")
	s.WaitLog(t, "the plugin may have added its container ID again", "again")
	n.Store = withoutPods // the daemon lists no pod any more
}
