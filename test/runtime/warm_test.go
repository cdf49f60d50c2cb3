package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/calico"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// slowPlugin runs a plugin whose ADD and DEL take 2 s longer, as over a distant server, and are counted.
const slowPlugin = `#!/bin/sh
case $CNI_COMMAND in
ADD|DEL) echo $CNI_COMMAND >>"$0.calls"; sleep 2 ;;
esac
exec "${0%/*}/real/${0##*/}"
`

// warmNode returns a node with a slow plugin and leases that were acquired ahead of pods.
func warmNode(t *testing.T, plugin string, leases int) (n *node, s *harness.Daemon) {
	t.Helper()
	n = newNode(t)
	bridge := section{"type": "bridge", "bridge": "cni0", "ipam": n.through(n.hostLocal("10.15.0.0/24"))}
	if plugin == "calico-ipam" {
		cluster.RunLines(t, "cp "+filepath.Join(env(t, "DIR"), plugin)+" "+n.BinDir)
		n.Node.Store = calico.StartEtcd(t, n.logs, "etcd", "10.15.0.0/24").Leases
		bridge["ipam"] = n.through(section{"type": plugin})
		calico.Configure(bridge, filepath.Join(n.logs, "calico.log"))
	}
	program := filepath.Join(n.BinDir, plugin)
	real := filepath.Join(cluster.EmptyDir(t, n.BinDir, "real"), plugin) // calico's program does what its name says
	check.Must(t, os.Rename(program, real))
	n.InstallScript(t, plugin, slowPlugin)
	n.writePlugins(t, bridge)
	n.startContainerd(t)
	n.Flags = append(n.Flags, fmt.Sprintf("--warm-leases=%d", leases), "--max-plugin-processes=32")
	s = n.Start(t)
	n.waitWarm(t, leases)
	return n, s
}

// waitWarm waits until the daemon and the plugin agree on so many leases under IDs of the daemon.
func (n *node) waitWarm(t *testing.T, leases int) {
	t.Helper()
	cluster.MustEventually(t, fmt.Sprintf("%d leases ahead", leases), convergeTimeout, func() error {
		listed, err := n.Client().TryList()
		stored, storeErr := n.Store()
		err = errors.Join(err, storeErr)
		for _, l := range stored {
			if !strings.HasPrefix(l.ContainerID, "cilium-agent-warm-") {
				err = errors.Join(err, fmt.Errorf("%v is not under an ID of the daemon", l))
			}
		}
		if len(listed) != leases || len(stored) != leases {
			err = errors.Join(err, fmt.Errorf("the list has %d attachments, the store %d leases", len(listed), len(stored)))
		}
		return err
	})
}

// calls returns how many ADDs and DELs the plugin has had.
func (n *node) calls(t *testing.T) int {
	t.Helper()
	counted, err := filepath.Glob(filepath.Join(n.BinDir, "*.calls"))
	check.Must(t, err)
	check.Equal(t, "plugins that were called", len(counted), 1)
	data, err := os.ReadFile(counted[0])
	check.Must(t, err)
	return bytes.Count(data, []byte{'\n'})
}

// Sandboxes of a real containerd start and end over a slow plugin, one with etcd, without a call of it, and the daemon is
// killed between: each has a separate address, and nothing leaks.
func TestWarmLeases(t *testing.T) {
	for _, plugin := range []string{"host-local", "calico-ipam"} {
		t.Run(plugin, func(t *testing.T) { testWarmLeases(t, plugin) })
	}
}

func testWarmLeases(t *testing.T, plugin string) {
	const leases, pods = 8, 6
	n, s := warmNode(t, plugin, leases)
	before := n.calls(t)
	ids := map[string]netip.Addr{}
	seen := map[netip.Addr]bool{}
	for i := range 2 { // fewer than a quarter at one time
		id := n.mustRun(t, fmt.Sprint("web-", i))
		ip, err := n.address(t.Context(), id)
		check.Must(t, err)
		ids[id], seen[ip] = ip, true
	}
	check.Equal(t, "addresses", len(seen), 2)
	s.Kill(t)
	n.Start(t)
	n.waitWarm(t, leases)
	for id, ip := range ids {
		now, err := n.address(t.Context(), id)
		check.Must(t, err)
		check.Equal(t, "address after the restart", now, ip)
		check.Must(t, n.stop(t.Context(), id))
		check.Must(t, n.remove(t.Context(), id))
	}
	check.Equal(t, "calls of the plugin for the sandboxes", n.calls(t)-before, 0)

	// A burst takes all, and they are acquired again.
	check.Must(t, errors.Join(n.runAll(t.Context(), pods)...))
	n.waitWarm(t, leases+pods)
}
