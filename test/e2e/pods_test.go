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

	plugincall "github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
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
	longest := strings.Repeat("0123456789abcdef", 16)[:255] // container ID of host-local
	n, pods := podNode(t)
	s := n.Start(t)
	call(t, pods, "STATUS", "")
	first := call(t, pods, "ADD", longest)
	for _, part := range []string{`"cniVersion":"1.1.0"`, `"gateway":"10.15.0.1"`, `"address":"fd00:15::`} {
		if !strings.Contains(string(first), part) {
			t.Errorf("ADD returned %s; want %s in it", first, part)
		}
	}
	if again := call(t, pods, "ADD", longest); !bytes.Equal(again, first) {
		t.Errorf("the second ADD returned %s; want %s", again, first)
	}
	call(t, pods, "CHECK", longest)
	s.WaitConsistent(t)
	wantIDs(t, n, longest)

	// The agent of CFP-45607 repeats the ADD of one container ID at each start (TestSecondStart).
	s.Stop(t)
	refused(t, pods, "STATUS", "", `"code": 50`)
	n.Start(t)
	if second := call(t, pods, "ADD", longest); !bytes.Equal(second, first) {
		t.Errorf("after a restart ADD returned %s; want %s", second, first)
	}

	call(t, pods, "DEL", longest)
	wantIDs(t, n)
	call(t, pods, "DEL", longest)
	call(t, pods, "DEL", "never-added")
	refused(t, pods, "CHECK", longest, longest)
	wantIDs(t, n)
}

func TestPodWhileDaemonRestarts(t *testing.T) {
	t.Parallel()
	n, pods := podNode(t)
	s := n.Start(t)
	called, open := gatedADD(t, n)
	type result struct {
		ips []string
		err error
	}
	done := make(chan result)
	go func() {
		ips, err := pods.TryAdd("0123abcd")
		done <- result{ips, err}
	}()
	called()
	s.Kill(t)
	refused(t, pods, "STATUS", "", `"code": 50`)
	open()
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

// A boot ID that reads differently, as in a container of LXC, releases no container whose network
// namespace exists.
//
//evidence:design/reliability the boot ID changes while pods run
func TestBootIDChangesWhileContainersRun(t *testing.T) {
	t.Parallel()
	n, pods := podNode(t)
	s := n.Start(t)
	living := harness.NewNetNS(t)
	ips := pods.Add(t, living)
	ended := pods.Add(t, "ended")
	s.Kill(t)
	n.Reboot(t)
	s = n.Start(t)
	waitReleased(t, s, "cni/ended/eth0")
	wantState(t, s, "cni/"+living+"/eth0", "held")
	s.WaitLog(t, "The boot ID changed", "released=1", "kept=1")
	wantIDs(t, n, living)
	wantDisjoint(t, pods.Add(t, "next"), ips)
	wantDisjoint(t, ended, ips)
	s.Stop(t)
	s = n.Start(t)
	wantState(t, s, "cni/"+living+"/eth0", "held")
	call(t, pods, "CHECK", living)
	call(t, pods, "DEL", living)
	wantIDs(t, n, "next")
}

// inStateDir reports whether a file of the state directory has a text.
func inStateDir(t *testing.T, n *harness.Node, text string) (found bool) {
	t.Helper()
	check.Must(t, filepath.Walk(n.StateDir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(text))
		return err
	}))
	return found
}

// A plugin that declares the capability gets the annotations of a pod at ADD. No other verb needs them, so
// they are not recorded.
func TestPodAnnotations(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	plugin := n.InstallScripted(t, "central")
	ipam := ranges()
	ipam["type"] = "central"
	pods := n.PodsThrough(t, "10-pods", harness.Network{Name: "pods", CNIVersion: "1.1.0", Plugin: "central", IPAM: ipam})
	n.Start(t, "--enable-ipv6=false")
	annotations := strings.Repeat("a", 512<<10)
	keys := map[string]any{"runtimeConfig": map[string]any{
		plugincall.KeyPodAnnotations: map[string]string{"example.com/text": annotations}, "portMappings": []any{},
	}}
	_, err := pods.Call("ADD", "0123abcd", keys)
	check.Must(t, err)
	if inStateDir(t, n, annotations[:1<<10]) {
		t.Error("the journal has the annotations")
	}
	call(t, pods, "CHECK", "0123abcd")
	call(t, pods, "DEL", "0123abcd")
	_, err = pods.Call("DEL", "never-added", keys)
	check.Must(t, err)
	for _, c := range plugin.Calls(t) {
		if c.Verb == "VERSION" || c.Verb == "STATUS" {
			continue
		}
		if got := bytes.Contains(c.Stdin, []byte(annotations)); got != (c.Verb == "ADD") {
			t.Errorf("%s: got the annotations: %t", c.Verb, got)
		}
		if !bytes.Contains(c.Stdin, []byte("portMappings")) && c.Verb == "ADD" {
			t.Errorf("%s had not the rest of runtimeConfig: %.200s", c.Verb, c.Stdin)
		}
	}
}

// An agent that repeats ADD at each start, as CFP-45607 describes, does not start twice over the real
// host-local (docs/design/upstream.md).
func TestSecondStart(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	out, err := exec.Command("../upstream/second-start.sh", filepath.Join(n.BinDir, "host-local")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
