package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const leaseDir = "/var/lib/cni/networks"

// agentAddresses is the number of addresses of an agent in each family: for router, health and ingress.
const agentAddresses = 3

func (tb *testbed) nodeState(ctx context.Context, n *node) (state ciliumagent.NodeState, err error) {
	object, err := tb.CiliumNodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return state, err
	}
	if state, err = ciliumagent.ReadNode(object); err != nil {
		return state, fmt.Errorf("%s: %w", n.name, err)
	}
	state.Store, err = n.leases()
	return state, err
}

func (n *node) leases() (map[netip.Addr]bool, error) {
	return cluster.HostLocal(n.path(leaseDir))
}

func (tb *testbed) podCIDRs(ctx context.Context, n *node) ([]netip.Prefix, error) {
	object, err := tb.kubeNode(ctx, n)
	if err != nil {
		return nil, err
	}
	if len(object.Spec.PodCIDRs) != tb.families() {
		return nil, fmt.Errorf("%s has podCIDRs %v; want %d", n.name, object.Spec.PodCIDRs, tb.families())
	}
	var all []netip.Prefix
	for _, text := range object.Spec.PodCIDRs {
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		all = append(all, cidr)
	}
	return all, nil
}

// mustPodCIDRs waits until the controller manager has given the node its ranges.
func (tb *testbed) mustPodCIDRs(t *testing.T, n *node) []netip.Prefix {
	t.Helper()
	var all []netip.Prefix
	cluster.MustEventually(t, "the podCIDRs of "+n.name, convergeTimeout, func() (err error) {
		all, err = tb.podCIDRs(t.Context(), n)
		return err
	})
	return all
}

func inRanges(cidrs []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(cidrs, func(cidr netip.Prefix) bool { return cidr.Contains(ip) })
}

func (tb *testbed) running(ctx context.Context) ([]corev1.Pod, error) {
	all, err := listOf[corev1.Pod](ctx, tb.Pods(podNamespace), metav1.ListOptions{})
	var pods []corev1.Pod
	for _, p := range all {
		if p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	return pods, err
}

func (tb *testbed) checkRecords(ctx context.Context) error {
	pods, err := tb.running(ctx)
	if err != nil {
		return err
	}
	errs := []error{sharedAddresses(pods)}
	for _, n := range tb.nodes {
		if err := tb.checkNode(tb, ctx, n, pods); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n.name, err))
		}
	}
	return errors.Join(errs...)
}

// checkPool checks the records of one node with a pool: each address of a pod is in the range of its
// node, in its CiliumNode and leased by its host-local; and every address in the pool is leased, every
// lease in the pool.
func (tb *testbed) checkPool(ctx context.Context, n *node, pods []corev1.Pod) error {
	state, err := tb.nodeState(ctx, n)
	if err != nil {
		return err
	}
	cidrs, err := tb.podCIDRs(ctx, n)
	if err != nil {
		return err
	}
	var errs []error
	owners, err := tb.podAddresses(n, pods)
	errs = append(errs, err)
	for ip, name := range owners {
		// The agent marks what it has restored at its start.
		if owner := strings.TrimSuffix(state.Used[ip], " [restored]"); !inRanges(cidrs, ip) || owner != podNamespace+"/"+name {
			errs = append(errs, fmt.Errorf("%s of pod %s is used by %q in the CiliumNode; want this pod, and an address of %v", ip, name, owner, cidrs))
		}
	}
	for ip := range state.Store {
		if !inRanges(cidrs, ip) {
			errs = append(errs, fmt.Errorf("%s, which host-local has leased, is not in %v", ip, cidrs))
		}
	}
	return errors.Join(append(errs, state.CheckRecords(agentAddresses*tb.families()+len(owners)))...)
}

// podAddresses returns the pod of each address on a node. Each pod must have one of each family.
func (tb *testbed) podAddresses(n *node, pods []corev1.Pod) (map[netip.Addr]string, error) {
	all, errs := map[netip.Addr]string{}, []error{}
	for _, p := range pods {
		if p.Spec.NodeName != n.name {
			continue
		}
		if len(p.Status.PodIPs) != tb.families() {
			errs = append(errs, fmt.Errorf("pod %s has addresses %v; want %d", p.Name, p.Status.PodIPs, tb.families()))
		}
		for _, text := range p.Status.PodIPs {
			ip, err := netip.ParseAddr(text.IP)
			all[ip], errs = p.Name, append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

func sharedAddresses(pods []corev1.Pod) error {
	var errs []error
	holder := map[string]string{}
	for _, p := range pods {
		for _, ip := range p.Status.PodIPs {
			if other, ok := holder[ip.IP]; ok {
				errs = append(errs, fmt.Errorf("%s belongs to two pods, %s and %s", ip.IP, other, p.Name))
			}
			holder[ip.IP] = p.Name
		}
	}
	return errors.Join(errs...)
}

func (tb *testbed) waitRecords(t *testing.T, when string) {
	t.Helper()
	cluster.MustEventually(t, "the records to agree "+when, convergeTimeout, func() error { return tb.checkRecords(t.Context()) })
}

const (
	// daemonSocket and daemonState are the daemon's on a node.
	daemonSocket = "/run/delegated-ipam/ipam.sock"
	daemonState  = "/var/lib/delegated-ipam"
	// networkFile is the CNI configuration, which runtime and daemon read.
	networkFile = "/etc/cni/net.d/05-pods.conflist"
	networkName = "pods"
)

// podsMode is ipam mode delegated-plugin: the patched agents and, by delegated-ipam-cni, the pods get
// their addresses from the daemon.
func podsMode() mode {
	return mode{
		manifests: "deploy/kubernetes/overlays/pods",
		agent:     "cilium-agent-delegated",
		agentFlags: []string{
			"--ipam=delegated-plugin", "--delegated-ipam-socket=" + daemonSocket,
			// By default an agent refuses pods (429) when it is busy with those before.
			"--api-rate-limit=endpoint-create=auto-adjust:false,rate-limit:50/s,rate-burst:50,parallel-requests:4,max-wait-duration:60s",
		},
		checkNode: (*testbed).checkContainers,
	}
}

// cniPlugin returns the first plugin of the node's CNI configuration: with host-local for pods, or
// with the daemon over it.
func (tb *testbed) cniPlugin(t *testing.T, n *node, throughDaemon bool) map[string]any {
	t.Helper()
	var ranges [][]map[string]string
	for _, cidr := range tb.mustPodCIDRs(t, n) {
		ranges = append(ranges, []map[string]string{{"subnet": cidr.String()}})
	}
	ipam := map[string]any{"type": "host-local", "ranges": ranges}
	if throughDaemon {
		ipam = map[string]any{"type": "delegated-ipam-cni", "delegate": ipam}
	}
	return map[string]any{"type": "cilium-cni", "log-file": "/run/cilium/cilium-cni.log", "ipam": ipam}
}

func (tb *testbed) writeNetworks(t *testing.T, throughDaemon bool) {
	t.Helper()
	for _, n := range tb.nodes {
		data, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": networkName, "plugins": []any{tb.cniPlugin(t, n, throughDaemon)}})
		check.Must(t, err)
		check.Must(t, os.WriteFile(n.path(networkFile+".new"), data, 0o644))
		check.Must(t, os.Rename(n.path(networkFile+".new"), n.path(networkFile)))
	}
}

func (n *node) attachments() ([]harness.Attachment, error) {
	return harness.Client{Socket: n.path(daemonSocket)}.TryList()
}

// checkContainers checks the records of one node without a pool: journal, daemon and host-local have
// the same leases, which are those of the agent and of the running pods.
func (tb *testbed) checkContainers(ctx context.Context, n *node, pods []corev1.Pod) error {
	listed, err := n.attachments()
	if err != nil {
		return err
	}
	store, _, err := oracle.HostLocalAfterKill(n.path(leaseDir))
	if err != nil {
		return err
	}
	onDisk, err := oracle.Journal(n.path(daemonState))
	if err != nil {
		return err
	}
	cidrs, err := tb.podCIDRs(ctx, n)
	if err != nil {
		return err
	}
	errs := []error{oracle.CompareAttachments(onDisk, harness.KeptRecords(listed)), oracle.Compare(store, harness.Leases(listed))}
	unused, agents := map[netip.Addr]string{}, 0
	for _, a := range listed {
		if !attachment.OfContainer(a.Owner) {
			agents++
			continue
		}
		for _, address := range a.Addresses {
			unused[address.IP] = a.Owner
			if !inRanges(cidrs, address.IP) {
				errs = append(errs, fmt.Errorf("%s of %s is not in %v", address.IP, a.Owner, cidrs))
			}
		}
	}
	if agents != agentAddresses {
		errs = append(errs, fmt.Errorf("the agent has %d attachments; want %d", agents, agentAddresses))
	}
	owners, err := tb.podAddresses(n, pods)
	errs = append(errs, err)
	for ip, name := range owners {
		if unused[ip] == "" {
			errs = append(errs, fmt.Errorf("%s of pod %s is not in the daemon's list", ip, name))
		}
		delete(unused, ip)
	}
	for ip, owner := range unused {
		errs = append(errs, fmt.Errorf("%s of %s belongs to no pod", ip, owner))
	}
	return errors.Join(errs...)
}

// collect calls GC on each node, as a runtime of CNI 1.1.0 does: with the containers that it has. It
// returns the owners of other containers: containerd does not call GC, and might forget a sandbox
// when it is killed. No pod may be starting.
func (tb *testbed) collect(t *testing.T) []string {
	t.Helper()
	var lost []string
	for _, n := range tb.nodes {
		cluster.MustEventually(t, "GC on "+n.name, convergeTimeout, func() error { // a program may be starting
			owners, err := tb.collectNode(t, n)
			lost = append(lost, owners...)
			return err
		})
	}
	return lost
}

func (tb *testbed) collectNode(t *testing.T, n *node) (lost []string, err error) {
	// Without the warnings, such as of cgroup v1.
	out, err := n.command(t.Context(), "sh", "-c", "ctr --namespace=k8s.io containers list --quiet 2>/dev/null")
	if err != nil {
		return nil, err
	}
	listed, err := n.attachments()
	if err != nil {
		return nil, err
	}
	containers := strings.Fields(out)
	for _, a := range listed {
		if attachment.OfContainer(a.Owner) && !slices.Contains(containers, a.ContainerID) {
			lost = append(lost, a.Owner)
		}
	}
	valid := []any{}
	for _, id := range containers {
		valid = append(valid, map[string]string{"containerID": id, "ifname": "eth0"})
	}
	conf := tb.cniPlugin(t, n, true)
	conf["cniVersion"], conf["name"], conf["cni.dev/valid-attachments"] = "1.1.0", networkName, valid
	data, err := json.Marshal(conf)
	check.Must(t, err)
	_, err = n.command(t.Context(), "sh", "-c",
		`printf %s "$1" | CNI_COMMAND=GC CNI_PATH=/opt/cni/bin /opt/cni/bin/delegated-ipam-cni`, "gc", string(data))
	if err != nil {
		return nil, err
	}
	return lost, nil
}

// monitor checks during a case that no address has two owners, and that the stable pods keep theirs.
type monitor struct {
	tb     *testbed
	stable map[string]string
	began  time.Time
	cancel context.CancelFunc
	ended  sync.WaitGroup

	violations map[string]bool
	// comparisons counts the lists of pods that were compared.
	comparisons int
}

// startMonitor starts a monitor. Its stop must be called.
func (tb *testbed) startMonitor(t *testing.T) *monitor {
	t.Helper()
	m := &monitor{tb: tb, stable: map[string]string{}, began: time.Now(), violations: map[string]bool{}}
	pods, err := tb.running(t.Context())
	check.Must(t, err)
	for _, p := range pods {
		if isStable(p) {
			m.stable[p.Name] = fmt.Sprint(p.Status.PodIPs)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.cancel = cancel
	m.ended.Go(func() {
		for ; ctx.Err() == nil; _ = cluster.Sleep(ctx, time.Second) {
			m.compare(ctx)
		}
	})
	return m
}

// stop ends the monitor, fails the test if there was a violation, and returns the number of comparisons.
func (m *monitor) stop(t *testing.T) int {
	t.Helper()
	m.cancel()
	m.ended.Wait()
	for v := range m.violations {
		t.Error(v)
	}
	if m.comparisons == 0 {
		t.Error("the monitor compared nothing")
	}
	return m.comparisons
}

func (m *monitor) compare(ctx context.Context) {
	pods, err := m.tb.running(ctx)
	if err != nil {
		return // the test ends
	}
	m.comparisons++
	m.check(sharedAddresses(pods))
	for _, p := range pods {
		if before, ok := m.stable[p.Name]; ok && fmt.Sprint(p.Status.PodIPs) != before {
			// A killed containerd may lose a sandbox; the next one gets an address like a new pod.
			err := m.tb.sandboxChanged(ctx, p.Name, m.began)
			if err != nil {
				m.check(fmt.Errorf("pod %s had %s and has %s: %w", p.Name, before, p.Status.PodIPs, err))
			}
			m.stable[p.Name] = fmt.Sprint(p.Status.PodIPs)
		}
	}
	m.check(m.lost(pods))
	var all []ciliumagent.Endpoint
	for _, n := range m.tb.nodes {
		list, err := n.agent().Endpoints(ctx)
		if err == nil { // otherwise the agent is down
			all = append(all, list...)
		}
	}
	m.check(ciliumagent.SharedAddresses(all))
}

// sandboxChanged returns nil if the kubelet has created another sandbox for a pod since a time.
func (tb *testbed) sandboxChanged(ctx context.Context, pod string, since time.Time) error {
	events, err := listOf[corev1.Event](ctx, tb.Resource("", "v1", "events").Namespace(podNamespace),
		metav1.ListOptions{FieldSelector: "reason=SandboxChanged,involvedObject.name=" + pod})
	late := func(e corev1.Event) bool { return !e.LastTimestamp.Time.Before(since.Truncate(time.Second)) }
	if err == nil && !slices.ContainsFunc(events, late) {
		err = errors.New("in the same sandbox")
	}
	return err
}

func (m *monitor) lost(pods []corev1.Pod) error {
	has := map[string]bool{}
	for _, p := range pods {
		has[p.Name] = true
	}
	for name := range m.stable {
		if !has[name] {
			return fmt.Errorf("pod %s no longer exists", name)
		}
	}
	return nil
}

func (m *monitor) check(err error) {
	if err != nil {
		m.violations[err.Error()] = true
	}
}
