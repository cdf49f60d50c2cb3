package whereabouts

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// controllerCases run whereabouts' own controllers, unmodified. They act on all namespaces, so each case runs alone.
var controllerCases = cases{
	"ip-reconciler":         testReconciler,
	"ip-control-loop":       testControlLoop,
	"node-slice-controller": testNodeSlices,
}

func (ns *namespace) hasProgram(name string) bool {
	_, err := os.Stat(filepath.Join(ns.built, "bin", name))
	return err == nil
}

// program defines a program of whereabouts, with files and environment as in a pod of its manifest. It runs when it
// is started.
func (ns *namespace) program(t *testing.T, name, node string) *cluster.Program {
	t.Helper()
	logs := filepath.Join(ns.built, "run")
	root := cluster.EmptyDir(t, logs, name)
	read := func(file string) []byte {
		content, err := os.ReadFile(file)
		check.Must(t, err)
		return content
	}
	const secrets = "var/run/secrets/kubernetes.io/serviceaccount"
	for file, content := range map[string][]byte{
		secrets + "/token":  []byte(account),
		secrets + "/ca.crt": read(filepath.Join(logs, "api.crt")),
		// By default once a day.
		"cron-schedule/config":                              []byte("@every 1s"),
		"host/etc/cni/net.d/whereabouts.d/whereabouts.conf": read(ns.flatFile),
	} {
		check.Must(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
		check.Must(t, os.WriteFile(filepath.Join(root, file), content, 0o600))
	}
	harness.WriteProgram(t, filepath.Join(root, name), read(filepath.Join(ns.built, "bin", name)))
	return cluster.NewProgram(t, logs, name, []string{
		"KUBERNETES_SERVICE_HOST=" + cluster.Host, "KUBERNETES_SERVICE_PORT=6443", "WHEREABOUTS_NAMESPACE=" + ns.name, "NODENAME=" + node,
	}, "chroot", root, "/"+name)
}

// reconciler returns ip-reconciler, which is a part of ip-control-loop before v0.9.
func (ns *namespace) reconciler(t *testing.T) *cluster.Program {
	t.Helper()
	if ns.hasProgram("ip-reconciler") {
		return ns.program(t, "ip-reconciler", "")
	}
	return ns.program(t, "ip-control-loop", ns.worker(t, "worker-1"))
}

// worker creates a Node, which the test deletes at its end.
func (ns *namespace) worker(t *testing.T, name string) string {
	t.Helper()
	check.Must(t, ns.Create(t.Context(), cluster.Object("v1", "Node", name)))
	t.Cleanup(func() { ns.deleteWorker(t, name) })
	return name
}

func (ns *namespace) deleteWorker(t *testing.T, name string) {
	t.Helper()
	check.Must(t, ns.Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}))
}

// reservedBy returns the reservations of the daemon, or those of pods.
func (ns *namespace) reservedBy(daemon bool) func() ([]oracle.Lease, error) {
	return func() ([]oracle.Lease, error) {
		all, err := ns.reservations()
		return slices.DeleteFunc(all, func(l oracle.Lease) bool { return strings.HasPrefix(l.ContainerID, "cilium-agent-") != daemon }), err
	}
}

// runPod runs a pod on a node, with an address of the plugin and the network-status of multus: of the pod's default
// network, or of another one.
func (ns *namespace) runPod(t *testing.T, name, node string, isDefault bool) (ip string) {
	t.Helper()
	ip = ns.mustAdd(t, add(name, fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s", ns.name, name)))
	pod := cluster.Object("v1", "Pod", name)
	pod.SetNamespace(ns.name)
	pod.SetAnnotations(map[string]string{"k8s.v1.cni.cncf.io/network-status": string(asJSON(t, []any{map[string]any{
		"name": ns.name + "/" + networkName, "interface": "eth0", "ips": []string{ip}, "default": isDefault,
	}}))})
	pod.Object["spec"] = map[string]any{"nodeName": node, "containers": []any{map[string]any{"name": "app", "image": "app"}}}
	check.Must(t, ns.Create(t.Context(), pod))
	check.Must(t, cluster.Patch(t.Context(), ns.Pods(ns.name), name, map[string]any{"status": map[string]any{"phase": "Running"}}, "status"))
	return ip
}

// mustAdd returns the first address of an ADD.
func (ns *namespace) mustAdd(t *testing.T, i invocation) string {
	t.Helper()
	ips, err := ns.run(t, i)
	check.Must(t, err)
	ip, _, _ := strings.Cut(ips[0], "/")
	return ip
}

func (ns *namespace) deletePod(t *testing.T, name string) {
	t.Helper()
	now := int64(0) // no kubelet confirms the end
	check.Must(t, ns.Pods(ns.name).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// defineNetwork creates the NetworkAttachmentDefinition of the network.
func (ns *namespace) defineNetwork(t *testing.T, ipam map[string]any) {
	t.Helper()
	definition := cluster.Object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", networkName)
	conf := asJSON(t, map[string]any{"cniVersion": "1.0.0", "name": networkName, "type": "cilium-cni", "ipam": ipam})
	definition.Object["spec"] = map[string]any{"config": string(conf)}
	in := ns.Resource("k8s.cni.cncf.io", "v1", "network-attachment-definitions").Namespace(ns.name)
	_, err := in.Create(t.Context(), definition, metav1.CreateOptions{})
	check.Must(t, err)
	// The node-slice-controller makes no slices while two with other ranges have no network_name.
	t.Cleanup(func() { check.Must(t, in.Delete(context.Background(), networkName, metav1.DeleteOptions{})) })
}

// testReconciler shows a danger of the profile: the reconciler frees every address of the daemon, and that of a
// running pod whose default network is whereabouts. An ADD of the daemon that gets a held address proves its loss:
// the holder gets it again. Where pods use the plugin without the daemon, one address is in use twice.
func testReconciler(t *testing.T, ns *namespace) {
	n := ns.newNode(t, ipv4Range)
	n.Store = ns.reservedBy(true)
	s := n.Start(t)
	wantDanger(t, s, "frees every reservation of the daemon, and those of running pods whose default network is whereabouts")
	held := map[string][]string{}
	for _, owner := range owners() {
		held[owner] = s.AllocateFor(t, owner)
	}
	byDefault := ns.runPod(t, "by-default", "", true)
	further := ns.runPod(t, "further", "", false)

	program := ns.reconciler(t)
	reconcile := func() {
		t.Helper()
		program.MustStart(t)
		cluster.MustEventually(t, "the reconciler to free all but the address of one pod", time.Minute, func() error {
			all, err := ns.reservations()
			if also := ns.overlapping(t); err != nil || len(all) != 1 || !slices.Equal(also, []string{further}) {
				return fmt.Errorf("reserved are %v (%v) and %q; want %s", all, err, also, further)
			}
			return nil
		})
		program.End(syscall.SIGTERM)
	}
	reconcile()
	wantSame(t, s, held) // by the journal

	// Each ADD makes the daemon acquire the lost addresses again that it got; it is refused if they were too many.
	var next []string
	cluster.MustEventually(t, "another owner to get an address", retryLimit, func() error {
		response := s.TryAllocate(t, harness.Request{Owner: "default/app-2"})
		if response.Status != http.StatusCreated {
			response.WantError(t, http.StatusBadGateway, "the plugin no longer holds it")
			return fmt.Errorf("%s", response)
		}
		next = response.Allocation(t).Addresses()
		return nil
	})
	if next[0] != byDefault {
		t.Errorf("default/app-2 got %s; want %s of the running pod, which is not reserved", next[0], byDefault)
	}
	s.WaitConsistent(t)
	wantSame(t, s, held)
	if got := s.Health(t).DelegatedIPAM.Counters; got["reacquired"] != int64(len(held)) {
		t.Errorf("the counters are %v; want %d addresses acquired again", got, len(held))
	}

	reconcile()
	if later := ns.runPod(t, "later", "", true); later != held["router"][0] {
		t.Errorf("a pod got %s; want %s of the router, which is not reserved", later, held["router"][0])
	}
	n.Store = nil
}

// ip-control-loop frees the address of a pod that is deleted, and none of the daemon.
func testControlLoop(t *testing.T, ns *namespace) {
	if !ns.hasProgram("ip-reconciler") {
		t.Skip("ip-control-loop is ip-reconciler, too, before v0.9")
	}
	ns.defineNetwork(t, ns.ipam(ipv4Range))
	n := ns.newNode(t, ipv4Range)
	n.Store = ns.reservedBy(true)
	s := n.Start(t)
	held := map[string][]string{}
	for _, owner := range append(owners(), ns.name+"/web") {
		held[owner] = s.AllocateFor(t, owner)
	}
	ns.program(t, "ip-control-loop", ns.worker(t, "worker-1")).MustStart(t)
	cluster.MustEventually(t, "the address of a deleted pod to be freed", time.Minute, func() error { // it sees no pod that ended before
		ns.runPod(t, "web", "worker-1", false)
		ns.deletePod(t, "web")
		return cluster.Eventually(t.Context(), 2*time.Second, func() error {
			if all, err := ns.reservedBy(false)(); err != nil || len(all) > 0 {
				return fmt.Errorf("the IPPools have %v (%v); want none of a pod", all, err)
			}
			return nil
		})
	})
	wantSame(t, s, held)
	s.WaitConsistent(t)
}

// testNodeSlices shows a danger of the profile: whereabouts divides the range itself, by its node-slice-controller, and
// a Node that is made again may get another slice, in which nothing of what the daemon holds is found.
func testNodeSlices(t *testing.T, ns *namespace) {
	if !ns.hasProgram("node-slice-controller") {
		t.Skip("whereabouts before v0.9 has no node slices")
	}
	section := map[string]any{"type": "whereabouts", "configuration_path": ns.flatFile, "range": ipv4Range, "node_slice_size": "/28"}
	ns.defineNetwork(t, section)
	one, two := ns.worker(t, "worker-1"), ns.worker(t, "worker-2")
	ns.program(t, "node-slice-controller", "").MustStart(t)
	sliceOf := ns.waitSlices(t, one, two)
	on := func(node string, i invocation, keys map[string]any) invocation {
		i.node, i.ipam = node, map[string]any{"ipRanges": nil, "range": ipv4Range, "node_slice_size": "/28"}
		maps.Copy(i.ipam, keys)
		return i
	}
	address := func(node string, offset int) string {
		return addOffset(sliceOf[node].Addr(), uint64(offset)).String() + "/24"
	}

	// The plugin: it ignores keys of the range, and a DEL searches only the pool of its node.
	ns.mustRun(t, on(two, add("a1", podA), map[string]any{"exclude": []string{sliceOf[two].String()}, "range_start": "10.15.0.200"}), address(two, 1))
	ns.mustRun(t, on(one, del("a1", podA), nil))
	ns.wantReserved(t, strings.TrimSuffix(address(two, 1), "/24")+" a1 eth0")
	ns.mustRun(t, on(two, del("a1", podA), nil))
	ns.wantReserved(t)
	both := map[string]any{"range": nil, "ipRanges": []any{map[string]any{"range": ipv4Range}, map[string]any{"range": ipv6Range}}}
	ns.mustRun(t, on(two, add("b1", podB), both), address(two, 1), strings.Replace(address(two, 1), "/24", "/16", 1)) // of 112 bits
	ns.mustRun(t, on(two, del("b1", podB), both))

	n := ns.newNode(t)
	n.WriteNetwork(t, "05-pods", harness.Network{Name: networkName, CNIVersion: "1.0.0", Plugin: "whereabouts", IPAM: section})
	n.Env, n.Flags = []string{"NODENAME=" + one}, append(n.Flags, "--plugin-env=NODENAME")
	s := n.Start(t)
	wantDanger(t, s, "frees nothing by the DEL of a node that has got another slice")
	held := allocateAll(t, s)
	for owner, ips := range held {
		if !sliceOf[one].Contains(netip.MustParseAddr(ips[0])) {
			t.Errorf("%s got %s; want one of %s", owner, ips[0], sliceOf[one])
		}
	}
	s.WaitConsistent(t)

	// Another Node gets the slice while this one does not exist.
	ns.deleteWorker(t, one)
	ns.waitSlices(t, two)
	three := ns.worker(t, "worker-3")
	if moved := ns.waitSlices(t, two, three); moved[three] != sliceOf[one] {
		t.Fatalf("the slices are %v; want %s for %s", moved, sliceOf[one], three)
	}
	check.Must(t, ns.Create(t.Context(), cluster.Object("v1", "Node", one)))
	now := ns.waitSlices(t, one, two, three)
	before := ns.mustReservations(t)
	s.Release(t, held["health"]...)
	ns.wantUnchanged(t, before)
	n.Store = nil
	n.ResetHistory() // the released address was not free
	delete(held, "health")
	wantSame(t, s, held)
	if health := s.AllocateFor(t, "health"); !now[one].Contains(netip.MustParseAddr(health[0])) {
		t.Errorf("health got %s; want one of the new slice %s", health[0], now[one])
	}
	// The other node's plugin allocates none of the first one's addresses: whereabouts reserves each in the whole cluster.
	ip := ns.mustAdd(t, on(three, add("c1", podB), nil))
	for owner, ips := range held {
		if ips[0] == ip {
			t.Errorf("%s got %s, which %s has", three, ip, owner)
		}
	}
}

// waitSlices waits until exactly these nodes "worker-…" have a slice, and returns them.
func (ns *namespace) waitSlices(t *testing.T, nodes ...string) map[string]netip.Prefix {
	t.Helper()
	found := map[string]netip.Prefix{}
	pools := ns.Resource("whereabouts.cni.cncf.io", "v1alpha1", "nodeslicepools").Namespace(ns.name)
	cluster.MustEventually(t, "the slices of the nodes", time.Minute, func() error {
		pool, err := pools.Get(t.Context(), networkName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		all, _, err := unstructured.NestedSlice(pool.Object, "status", "allocations")
		clear(found)
		for _, item := range all {
			if name, _, _ := unstructured.NestedString(item.(map[string]any), "nodeName"); strings.HasPrefix(name, "worker-") {
				subnet, _, _ := unstructured.NestedString(item.(map[string]any), "sliceRange")
				found[name] = netip.MustParsePrefix(subnet)
			}
		}
		if got := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(got, nodes) {
			return fmt.Errorf("%q have one (%v); want %q", got, err, nodes)
		}
		return nil
	})
	return found
}
