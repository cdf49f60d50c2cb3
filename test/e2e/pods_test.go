package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// podNode returns a node whose pods get their addresses through the daemon.
func podNode(t *testing.T) (*harness.Node, harness.Pods) {
	t.Helper()
	n := harness.NewNode(t)
	nw := harness.DualStack()
	nw.CNIVersion = "1.1.0"
	return n, n.PodsThrough(t, "10-pods", nw)
}

// call runs a verb that must succeed.
func call(t *testing.T, p harness.Pods, verb, id string) []byte {
	t.Helper()
	out, err := p.Call(verb, id, nil)
	check.Must(t, err)
	return out
}

// refused runs a verb that must fail with a text in its CNI error.
func refused(t *testing.T, p harness.Pods, verb, id, text string) {
	t.Helper()
	if _, err := p.Call(verb, id, nil); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s %s: got %v; want an error with %q", verb, id, err, text)
	}
}

// wantIDs wants leases of these container IDs only, one of each family.
func wantIDs(t *testing.T, n *harness.Node, ids ...string) {
	t.Helper()
	var got []string
	for _, l := range n.Leases(t) {
		got = append(got, l.ContainerID)
	}
	want := slices.Concat(ids, ids)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the store has leases of %q; want %q", got, want)
	}
}

func TestPodThroughDaemon(t *testing.T) {
	t.Parallel()
	n, pods := podNode(t)
	s := n.Start(t)
	call(t, pods, "STATUS", "")
	first := call(t, pods, "ADD", "0123abcd")
	for _, part := range []string{`"cniVersion": "1.1.0"`, `"gateway": "10.15.0.1"`, `"address": "fd00:15::`} {
		if !strings.Contains(string(first), part) {
			t.Errorf("ADD returned %s; want %s in it", first, part)
		}
	}
	if again := call(t, pods, "ADD", "0123abcd"); !bytes.Equal(again, first) {
		t.Errorf("the second ADD returned %s; want %s", again, first)
	}
	call(t, pods, "CHECK", "0123abcd")
	s.WaitConsistent(t)
	wantIDs(t, n, "0123abcd")

	// The agent of CFP-45607 repeats the ADD of one container ID at each start (TestSecondStart).
	s.Stop(t)
	refused(t, pods, "STATUS", "", `"code": 50`)
	n.Start(t)
	if second := call(t, pods, "ADD", "0123abcd"); !bytes.Equal(second, first) {
		t.Errorf("after a restart ADD returned %s; want %s", second, first)
	}

	call(t, pods, "DEL", "0123abcd")
	wantIDs(t, n)
	call(t, pods, "DEL", "0123abcd")
	call(t, pods, "DEL", "never-added")
	refused(t, pods, "CHECK", "0123abcd", "0123abcd")
	wantIDs(t, n)
}

func TestPodWhileDaemonRestarts(t *testing.T) {
	t.Parallel()
	n, pods := podNode(t)
	s := n.Start(t)
	called, gate := filepath.Join(n.Dir, "called"), filepath.Join(n.Dir, "gate")
	n.WrapPlugin(t, "host-local", `#!/bin/sh
if [ "$CNI_COMMAND" = ADD ]; then
  : >`+called+`
  until [ -e `+gate+` ]; do sleep 0.05; done
fi
exec "$0.real"`)
	type result struct {
		ips []string
		err error
	}
	done := make(chan result)
	go func() {
		ips, err := pods.TryAdd("0123abcd")
		done <- result{ips, err}
	}()
	harness.Eventually(t, "the plugin to be called", func() error {
		_, err := os.Stat(called)
		return err
	})
	s.Kill(t)
	refused(t, pods, "STATUS", "", `"code": 50`)
	check.Must(t, os.WriteFile(gate, nil, 0o600))
	n.Start(t)
	got := <-done
	check.Must(t, got.err)
	wantLeased(t, n, got.ips...)
	wantIDs(t, n, "0123abcd")
	call(t, pods, "STATUS", "")
}

// host-local frees every lease that its GC does not list. A GC of the runtime names none of the agent's.
func TestPodGC(t *testing.T) {
	t.Parallel()
	n, pods := podNode(t)
	s := n.Start(t, "--release-delay=1h")
	s.AllocateFor(t, "router")
	s.Release(t, s.AllocateFor(t, "health")...)
	for _, id := range []string{"listed", "stale", "web-0"} {
		pods.Add(t, id)
	}
	call(t, pods, "DEL", "web-0")
	for owner, state := range map[string]string{"router": "held", "health": "cooldown", "cni/web-0/eth0": "cooldown"} {
		wantState(t, s, owner, state)
	}
	store := n.Store
	n.PodsOf(t, harness.DualStack()).Add(t, "foreign")
	n.Store = store
	want := slices.DeleteFunc(n.Leases(t), func(l oracle.Lease) bool { return l.ContainerID == "foreign" })
	_, err := pods.Call("GC", "", map[string]any{"cni.dev/valid-attachments": []map[string]string{{"containerID": "listed", "ifname": "eth0"}}})
	check.Must(t, err)
	if got := n.Leases(t); len(want) != 10 || !slices.Equal(got, want) {
		t.Errorf("the store has %v; want %v", got, want)
	}
	wantState(t, s, "cni/stale/eth0", "cooldown")
}

// What the bare plugin has allocated is released through the daemon, and the other way round.
func TestPodChangeAndRollback(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	nw := harness.DualStack()
	n.WriteNetwork(t, "10-pods", nw)
	store := n.Store
	bare := n.PodsOf(t, nw)
	n.Store = store // with the leases of pods
	bare.Add(t, "before")
	through := n.PodsThrough(t, "10-pods", nw)
	s := n.Start(t)
	through.Add(t, "after")
	through.Add(t, "before") // as an agent that repeats its ADD at each start
	wantIDs(t, n, "before", "after")
	call(t, through, "DEL", "before")
	n.WriteNetwork(t, "10-pods", nw) // otherwise the lease is lost, and added again
	call(t, bare, "DEL", "after")
	wantIDs(t, n)
	s.Stop(t)
	s = n.Start(t)
	waitReleased(t, s, "cni/after/eth0")
	wantIDs(t, n)
}

// The real bridge plugin, in namespaces of its own, creates and ends a pod.
func TestPodOfBridge(t *testing.T) {
	t.Parallel()
	host, pod := harness.NewNetNS(t), harness.NewNetNS(t)
	n, pods := podNode(t)
	n.InstallPlugin(t, "bridge")
	n.Start(t)
	bridge := pods.DelegatedBy(t, map[string]any{"type": "bridge", "bridge": "cni0", "isGateway": true}, host, pod)
	call(t, bridge, "STATUS", "")
	result := call(t, bridge, "ADD", "0123abcd")
	wantIDs(t, n, "0123abcd")
	out, err := exec.Command("ip", "-netns", pod, "-brief", "address", "show", "eth0").CombinedOutput()
	for _, lease := range n.Leases(t) {
		if err != nil || !strings.Contains(string(out), " "+lease.IP.String()+"/") {
			t.Errorf("eth0 of the pod has %s, %v; want %s", out, err, lease.IP)
		}
	}
	for _, verb := range []string{"CHECK", "DEL"} {
		_, err := bridge.Call(verb, "0123abcd", map[string]any{"prevResult": json.RawMessage(result)})
		check.Must(t, err)
	}
	wantIDs(t, n)
}
