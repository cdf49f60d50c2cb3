package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/lostnodes"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// centralNodes returns two nodes with one central server, whose store is the first node's. Their
// daemons are not compared with the store, which has the addresses of both.
func centralNodes(t *testing.T, facts map[string]any) (a, b *harness.Node, server harness.Central) {
	t.Helper()
	all := map[string]any{"delFromAnyNode": true}
	maps.Copy(all, facts)
	a, b = harness.NewNode(t), harness.NewNode(t)
	shared := map[string]any{"scriptDir": filepath.Join(a.BinDir, "central-ipam.d")}
	server = a.InstallCentral(t, 0, all, shared)
	b.InstallCentral(t, 0, all, shared)
	a.Store, b.Store = nil, nil
	return a, b, server
}

// reclaim runs the command on a node with the options of its daemon.
func runReclaim(t *testing.T, n *harness.Node, flags ...string) harness.CommandResult {
	t.Helper()
	args := append([]string{"reclaim", "--node-name=" + n.Name, "--cni-conf-dir=" + n.ConfDir, "--cni-bin-dir=" + n.BinDir}, flags...)
	for _, flag := range n.Flags {
		if !strings.HasPrefix(flag, "--enable-") {
			args = append(args, flag)
		}
	}
	return n.Command(t, args...)
}

// gone confirms that a node was removed.
func gone(n *harness.Node) []string {
	return []string{"--node=" + n.Name, "--yes-the-node-is-gone=" + n.Name}
}

// lose allocates on a node for these owners, and ends its daemon and its journal.
func lose(t *testing.T, n *harness.Node, owners ...string) {
	t.Helper()
	s := n.Start(t)
	for _, owner := range owners {
		s.AllocateFor(t, owner)
	}
	s.Kill(t)
	n.WipeJournal(t)
}

// wantHolders compares the container IDs of the server's store.
func wantHolders(t *testing.T, server harness.Central, want ...string) {
	t.Helper()
	leases, err := server.Leases("pods")
	check.Must(t, err)
	var got []string
	for _, l := range leases {
		got = append(got, l.ContainerID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the server has the IDs %q; want %q", got, want)
	}
}

func idsOf(n *harness.Node, owners ...string) []string {
	var ids []string
	for _, owner := range owners {
		ids = append(ids, containerid.For(owner, n.Name, "pods"))
	}
	return ids
}

func TestReclaim(t *testing.T) {
	t.Parallel()
	a, b, server := centralNodes(t, nil)
	owners := []string{"router", "health", "ciliumnode-0", "ciliumnode-255"}
	kept := append(idsOf(b, "router"), "pod")
	server.Pods.Add(t, "pod")
	b.Start(t).AllocateFor(t, "router")
	lose(t, a, owners...)
	held := append(idsOf(a, owners...), kept...)
	wantHolders(t, server, held...)

	dels := server.CallCount(t, "DEL")
	out := runReclaim(t, b, "--node="+a.Name, "--dry-run")
	if out.ExitCode != 0 || strings.Count(out.Stdout, "would-release") != 259 || !strings.Contains(out.Stdout, idsOf(a, "ciliumnode-0")[0]) {
		t.Errorf("the dry run ended with %d and %s%s; want 0 and 259 IDs", out.ExitCode, out.Stdout, out.Stderr)
	}
	wantHolders(t, server, held...)
	if got := server.CallCount(t, "DEL"); got != dels {
		t.Errorf("the dry run called DEL %d times", got-dels)
	}

	out = runReclaim(t, b, append(gone(a), "--owner="+strings.Join(owners, ","), "-o", "json")...)
	var results []struct {
		Owner, State string
		ContainerID  string `json:"container-id"`
	}
	check.Must(t, json.Unmarshal([]byte(out.Stdout), &results))
	if out.ExitCode != 0 || len(results) != len(owners) || results[0].Owner != "router" || results[0].State != "released" || results[0].ContainerID != idsOf(a, "router")[0] {
		t.Errorf("ended with %d and %d results that begin with %+v: %s", out.ExitCode, len(results), results[:1], out.Stderr)
	}
	wantHolders(t, server, kept...)
}

// The DEL is called as the lost daemon called its ADD.
func TestReclaimCall(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "whereabouts", nil)
	n.Flags = []string{"--accept-unsafe-plugin", "--cni-ifname=ipam0"}
	lose(t, n, "default/web-0")
	other := *n
	other.Name = n.Name + "-other"
	if out := runReclaim(t, &other, append(gone(n), "--owner=default/web-0")...); out.ExitCode != 0 {
		t.Fatalf("ended with %d: %s", out.ExitCode, out.Stderr)
	}
	if held := plugin.Holds(t); len(held) != 0 {
		t.Errorf("the plugin holds %q; want nothing", held)
	}
	calls := plugin.Calls(t)
	i := slices.IndexFunc(calls, func(c harness.PluginCall) bool { return c.Verb == "ADD" })
	added, deleted := calls[i], calls[len(calls)-1]
	if deleted.Verb != "DEL" || string(deleted.Stdin) != string(added.Stdin) {
		t.Errorf("%s has the configuration %s; want DEL with %s", deleted.Verb, deleted.Stdin, added.Stdin)
	}
	for _, name := range []string{"CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS", "CNI_PATH"} {
		if deleted.Env[name] != added.Env[name] || added.Env[name] == "" {
			t.Errorf("%s is %q; want %q", name, deleted.Env[name], added.Env[name])
		}
	}
}

// lockedStore is the script of a DEL that fails.
const lockedStore = `{"error":{"cniVersion":"1.0.0","code":11,"msg":"the store is locked"}}`

// A node of the list that cannot be reclaimed fails alone, whichever comes first. Its other IDs are tried in the
// next run.
func TestReclaimBadNode(t *testing.T) {
	t.Parallel()
	a, b, server := centralNodes(t, nil)
	lose(t, a, "router", "ciliumnode-1")
	server.Pods.Add(t, "pod")
	server.SetOwnerScript(t, "DEL", "locked", lockedStore)
	pods := []string{"pods"}
	foreign := lostnodes.Target{Node: "foreign", Owner: "router", Network: "pods", ContainerID: "pod"}
	lists := [][]lostnodes.Target{
		{foreign},
		lostnodes.Targets("elsewhere", []string{"router"}, []string{"other"}, 0),
		lostnodes.Targets(b.Name, []string{"router"}, pods, 0),
		lostnodes.Targets("locked", []string{"locked", "Locked", "LOcked", "LOCked", "LOCKed", "LOCKEd", "LOCKED"}, pods, 0),
		lostnodes.Targets(a.Name, []string{"router", "ciliumnode-0", "ciliumnode-1"}, pods, 0),
	}
	bad := map[string]string{"foreign": "one of a daemon", "elsewhere": "configured here", b.Name: "is this node", "locked": "the store is locked"}
	list, report := filepath.Join(b.Dir, "list.json"), filepath.Join(b.Dir, "report.json")
	check.Must(t, lostnodes.List{Time: time.Now(), Targets: slices.Concat(lists...)}.Write(list))
	out := runReclaim(t, b, "--from="+list, "--report="+report, "--yes")
	if out.ExitCode != 0 || !strings.Contains(out.Stdout, "the store is locked") {
		t.Fatalf("ended with %d: %s%s", out.ExitCode, out.Stdout, out.Stderr)
	}
	wantHolders(t, server, "pod")
	got, err := lostnodes.Read(report)
	check.Must(t, err)
	for _, target := range got.Targets {
		want, failed := bad[target.Node]
		if !failed && target.State != lostnodes.Released || failed && target.State != lostnodes.NotTried && !strings.Contains(target.Error, want) {
			t.Errorf("the report has %+v; want %q", target, want)
		}
	}
	check.Must(t, os.Remove(report))
	if out := runReclaim(t, b, "--from="+list, "--yes"); out.ExitCode != 1 || !strings.Contains(out.Stderr, "of 13 container IDs were not released") {
		t.Errorf("without a report: ended with %d: %s; want 1 and a count", out.ExitCode, out.Stderr)
	}
}

func TestReclaimRefused(t *testing.T) {
	t.Parallel()
	a, b, server := centralNodes(t, nil)
	a.Start(t).AllocateFor(t, "router")
	for name, c := range map[string]struct {
		node  *harness.Node
		flags []string
		code  int
		want  string
	}{
		"not confirmed":         {b, []string{"--node=" + a.Name}, 2, "--yes-the-node-is-gone=" + a.Name},
		"this node":             {b, gone(b), 1, "is this node"},
		"its daemon runs":       {b, gone(a), 1, "runs on this machine (PID"},
		"no such configuration": {b, append(gone(a), "--cni-network=none"), 1, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			out := runReclaim(t, c.node, c.flags...)
			if out.ExitCode != c.code || !strings.Contains(out.Stderr, c.want) {
				t.Errorf("ended with %d: %s; want %d and %q", out.ExitCode, out.Stderr, c.code, c.want)
			}
		})
	}
	wantHolders(t, server, idsOf(a, "router")...)
}
