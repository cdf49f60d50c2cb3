package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// leaseDir is host-local's directory on a node.
const leaseDir = "/var/lib/cni/networks"

// agentAddresses is the number of addresses of an agent in each family: for router, health and ingress.
const agentAddresses = 3

// nodeState returns the records about the node's addresses.
func (tb *testbed) nodeState(ctx context.Context, n *node) (ciliumagent.NodeState, error) {
	object, err := tb.ciliumNodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return ciliumagent.NodeState{}, err
	}
	state, err := ciliumagent.ReadNode(object)
	if err != nil {
		return ciliumagent.NodeState{}, fmt.Errorf("%s: %w", n.name, err)
	}
	state.Store, err = n.leases()
	return state, err
}

// leases returns the addresses in host-local's lease files.
func (n *node) leases() (map[netip.Addr]bool, error) {
	// A killed host-local may leave an empty lease file until its owner allocates again.
	leases, _, err := oracle.HostLocalAfterKill(n.path(leaseDir))
	held := map[netip.Addr]bool{}
	for _, lease := range leases {
		held[lease.IP] = true
	}
	return held, err
}

// podCIDRs returns the node's ranges, one of each family.
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

// inRanges reports whether one of the ranges contains the address.
func inRanges(cidrs []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(cidrs, func(cidr netip.Prefix) bool { return cidr.Contains(ip) })
}

// running returns the pods of the tests that are not being deleted.
func (tb *testbed) running(ctx context.Context) ([]corev1.Pod, error) {
	all, err := listOf[corev1.Pod](ctx, tb.pods(podNamespace), metav1.ListOptions{})
	var pods []corev1.Pod
	for _, p := range all {
		if p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	return pods, err
}

// checkRecords returns nil if all records of both nodes agree, and no address has two owners.
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
	count := agentAddresses
	for _, p := range pods {
		if p.Spec.NodeName != n.name {
			continue
		}
		count++
		if len(p.Status.PodIPs) != tb.families() {
			errs = append(errs, fmt.Errorf("pod %s has addresses %v; want %d", p.Name, p.Status.PodIPs, tb.families()))
		}
		for _, text := range p.Status.PodIPs {
			ip, err := netip.ParseAddr(text.IP)
			owner := strings.TrimSuffix(state.Used[ip], " [restored]") // by the agent, after its start
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("pod %s: %w", p.Name, err))
			case !inRanges(cidrs, ip):
				errs = append(errs, fmt.Errorf("%s of pod %s is not in %v", ip, p.Name, cidrs))
			case owner != podNamespace+"/"+p.Name:
				errs = append(errs, fmt.Errorf("%s of pod %s is used by %q in the CiliumNode", ip, p.Name, owner))
			}
		}
	}
	for ip := range state.Store {
		if !inRanges(cidrs, ip) {
			errs = append(errs, fmt.Errorf("%s, which host-local has leased, is not in %v", ip, cidrs))
		}
	}
	return errors.Join(append(errs, state.CheckRecords(count*tb.families()))...)
}

// sharedAddresses returns an error for each address of two pods.
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

// waitRecords waits until all records agree.
func (tb *testbed) waitRecords(t *testing.T, when string) {
	t.Helper()
	cluster.MustEventually(t, "the records to agree "+when, convergeTimeout, func() error { return tb.checkRecords(t.Context()) })
}
