package audit

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// agentLimit is the time after which an agent should have written its status: several times its
// --ipam-cilium-node-update-rate in a large cluster.
const agentLimit = 15 * time.Minute

// PodAddress is an address of a pod without hostNetwork.
type PodAddress struct {
	// Pod is NAMESPACE/NAME; Node is the node on which it runs.
	Pod, Node string
	IP        netip.Addr
	// Since is when the pod was started.
	Since time.Time
	// Ready reports whether it is ready and not being deleted.
	Ready bool
}

// Pod is a bridge pod. Its name is NAMESPACE/NAME.
type Pod struct {
	Name string
	Node string
	// Ready reports whether it is ready and not being deleted.
	Ready bool
	// Since is when it started; zero if it has not.
	Since time.Time
}

type Cluster struct {
	// SharedRange reports that not every node takes its addresses from its podCIDRs.
	SharedRange bool
	Now         time.Time
	// Nodes are the podCIDRs of the Nodes. One that cannot be parsed contains nothing.
	Nodes map[string][]string
	// BridgePods are the pods of the bridge, PodAddresses the addresses of pods.
	BridgePods   []Pod
	PodAddresses []PodAddress

	// only are the addresses to keep, in order; nil for all.
	only []netip.Addr
	// addresses has the holders of each address, by index sorted and with NodeDeleted.
	addresses map[netip.Addr][]Holder
	nodes     map[string]node
	// cidrs are the podCIDRs, lengths the lengths of their prefixes.
	cidrs    map[netip.Prefix][]Range
	lengths  []int
	findings []Finding
}

// node has the kept fields of a CiliumNode besides its name and addresses.
type node struct {
	// pool and used count its addresses; ours are those in the pool that the bridge wrote.
	pool, used, ours int
	// otherMode reports whether it is of another ipam mode than crd.
	otherMode bool
	malformed []Finding
	// addresses are those of the node itself, without that of Cilium's router.
	addresses []netip.Addr
	// marks is the number of unanswered release marks, written the time of the last write of the status.
	marks   int
	written time.Time
}

// NewCluster returns a cluster without objects. If addresses are given, only their holders are kept.
func NewCluster(only ...netip.Addr) *Cluster {
	c := &Cluster{}
	for _, ip := range only {
		if ip = ip.Unmap().WithZone(""); !slices.Contains(c.only, ip) {
			c.only = append(c.only, ip)
		}
	}
	c.CiliumNodes()
	return c
}

// CiliumNodes begins the list of CiliumNodes, again if it was begun before. It returns the function
// that adds one, which keeps no reference to it.
func (c *Cluster) CiliumNodes() (add func(*ciliumnode.Node)) {
	c.addresses, c.nodes = map[netip.Addr][]Holder{}, map[string]node{}
	return c.addCiliumNode
}

func (c *Cluster) addCiliumNode(n *ciliumnode.Node) {
	addresses, malformed := readAddresses(n)
	summary := node{otherMode: n.OtherMode() != "", malformed: malformed}
	for _, state := range n.Status.IPAM.ReleaseIPs {
		if state == planner.MarkedForRelease {
			summary.marks++
		}
	}
	for _, m := range n.Metadata.ManagedFields {
		if m.Subresource == "status" && m.Time != nil && m.Time.After(summary.written) {
			summary.written = m.Time.Time
		}
	}
	for _, a := range n.Spec.Addresses {
		if ip, _ := ciliumnode.ParseAddress(a.IP); ip.IsValid() && a.Type != "CiliumInternalIP" && !slices.Contains(summary.addresses, ip) {
			summary.addresses = append(summary.addresses, ip)
		}
	}
	for ip, h := range addresses {
		if h.InPool {
			summary.pool++
		}
		if h.Slot != "" {
			summary.ours++
		}
		if h.Used {
			summary.used++
		}
		if (h.InPool || h.Used) && (c.only == nil || slices.Contains(c.only, ip)) {
			c.addresses[ip] = append(c.addresses[ip], h)
		}
	}
	c.nodes[n.Metadata.Name] = summary
}

// Report returns the findings about everything that was added.
func (c *Cluster) Report() Report {
	c.index()
	r := Report{CiliumNodes: len(c.nodes), Nodes: len(c.Nodes), BridgePods: len(c.BridgePods)}
	for _, n := range c.nodes {
		r.PoolAddresses += n.pool
		r.UsedAddresses += n.used
	}
	c.findings = []Finding{}
	for _, find := range []func(){c.perAddress, c.outsidePodCIDRs, c.ofAnotherNode, c.agentSilent, c.perNode, c.withoutCiliumNode} {
		find()
	}
	order := map[Check]int{}
	for i, check := range checks() {
		order[check.of] = i
	}
	slices.SortFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(order[a.Check], order[b.Check]), cmp.Compare(a.Node, b.Node), compareAddresses(a.Address, b.Address), cmp.Compare(a.Message, b.Message))
	})
	r.Findings = c.findings
	for i, f := range r.Findings {
		r.Findings[i].Remedy = checks()[order[f.Check]].remedy
	}
	return r
}

// find adds a finding of a check.
func (c *Cluster) find(f Finding, of Check, format string, args ...any) {
	f.Check, f.Message = of, fmt.Sprintf(format, args...)
	c.findings = append(c.findings, f)
}

func compareAddresses(a, b string) int {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		return cmp.Compare(a, b)
	}
	return x.Compare(y)
}

// perAddress finds the addresses in several pools, and those that are used and not in the pool of their node.
func (c *Cluster) perAddress() {
	for ip, holders := range c.addresses {
		pools := 0
		for _, h := range holders {
			switch {
			case h.InPool:
				pools++
			case h.Used:
				also := ""
				if others := slices.DeleteFunc(slices.Clone(holders), func(o Holder) bool { return o.Node == h.Node }); len(others) > 0 {
					also = "; also " + list(others)
				}
				c.find(Finding{Node: h.Node, Address: ip.String(), Holders: holders}, NotHeld, "used%s, and not in the pool of this node%s", by(h.UsedBy), also)
			}
		}
		if pools > 1 {
			c.find(Finding{Address: ip.String(), Holders: holders}, TwoPools, "in %d pools: %s", pools, list(holders))
		}
	}
}

// outsidePodCIDRs finds the addresses of the bridge that are in the podCIDR of another node and, while
// any node has one in its own, those in none and the foreign ones in the podCIDR of another node. In a
// cluster in which no node has one the plugin allocates from other ranges.
func (c *Cluster) outsidePodCIDRs() {
	if c.SharedRange || len(c.cidrs) == 0 {
		return
	}
	inOwn := false
	for ip, holders := range c.addresses {
		for _, h := range holders {
			inOwn = inOwn || h.Slot != "" && slices.ContainsFunc(c.ranges(ip), func(r Range) bool { return r.Node == h.Node })
		}
	}
	for ip, holders := range c.addresses {
		ranges := c.ranges(ip)
		for _, h := range holders {
			own := slices.ContainsFunc(ranges, func(r Range) bool { return r.Node == h.Node })
			known := h.InPool && inOwn && (h.Slot != "" || len(ranges) > 0)
			if own || h.NodeDeleted || !known && (h.Slot == "" || len(ranges) == 0) {
				continue
			}
			f := Finding{Node: h.Node, Address: ip.String(), Holders: holders}
			if len(ranges) > 0 {
				f.OtherNode = ranges[0].Node
			}
			c.find(f, OutsidePodCIDRs, "not in the podCIDRs of this node, but in those of %s: %s", cmp.Or(f.OtherNode, "none"), h)
		}
	}
}

// ofAnotherNode finds the addresses in pools that belong to another node: to the node itself, or to a pod
// there, unless the CiliumNode there shows it. A pod counts if it has run for agentLimit, so that the address
// has not moved between the reads, and if Cilium runs on its node.
func (c *Cluster) ofAnotherNode() {
	add := func(ip netip.Addr, owner, claim string) {
		for _, h := range c.addresses[ip] {
			// The pool of another mode, as of a cloud, may have an address that its node had before.
			if n := c.nodes[h.Node]; c.exists(owner) && h.InPool && h.Node != owner && (n.ours > 0 || !n.otherMode) {
				c.find(Finding{Node: h.Node, OtherNode: owner, Address: ip.String(), Holders: c.addresses[ip]}, OfAnotherNode, "in the pool of this node, but %s: %s", claim, h)
			}
		}
	}
	for name, n := range c.nodes {
		for _, ip := range n.addresses {
			add(ip, name, "it is an address of node "+name)
		}
	}
	for _, p := range c.PodAddresses {
		_, cilium := c.nodes[p.Node]
		shown := slices.ContainsFunc(c.addresses[p.IP], func(h Holder) bool { return h.Node == p.Node })
		if p.Ready && cilium && !shown && c.Now.Sub(p.Since) >= agentLimit {
			add(p.IP, p.Node, fmt.Sprintf("pod %s on %s has it", p.Pod, p.Node))
		}
	}
}

func (c *Cluster) exists(name string) bool {
	_, exists := c.Nodes[name]
	return exists
}

// index indexes podCIDRs by prefix, sorts the holders of each address by node and sets NodeDeleted.
func (c *Cluster) index() {
	c.cidrs, c.lengths = map[netip.Prefix][]Range{}, nil
	for _, holders := range c.addresses {
		for i := range holders {
			holders[i].NodeDeleted = !c.exists(holders[i].Node)
		}
		slices.SortFunc(holders, func(a, b Holder) int { return cmp.Compare(a.Node, b.Node) })
	}
	for name, podCIDRs := range c.Nodes {
		for _, text := range podCIDRs {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				continue
			}
			c.cidrs[prefix.Masked()] = append(c.cidrs[prefix.Masked()], Range{name, text})
			if !slices.Contains(c.lengths, prefix.Bits()) {
				c.lengths = append(c.lengths, prefix.Bits())
			}
		}
	}
}

// ranges returns the podCIDRs that contain an address, by node.
func (c *Cluster) ranges(ip netip.Addr) []Range {
	all := []Range{}
	for _, bits := range c.lengths {
		if prefix, err := ip.Prefix(bits); err == nil {
			all = append(all, c.cidrs[prefix]...)
		}
	}
	slices.SortFunc(all, func(x, y Range) int { return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(x.CIDR, y.CIDR)) })
	return all
}

func (c *Cluster) perNode() {
	pods := map[string][]Pod{}
	for _, p := range c.BridgePods {
		pods[p.Node] = append(pods[p.Node], p)
	}
	for name, n := range c.nodes {
		c.findings = append(c.findings, n.malformed...)
		switch {
		case !c.exists(name):
			if n.pool > 0 {
				c.find(Finding{Node: name}, NodeDeleted, "the Node does not exist; its CiliumNode has %d addresses in its pool, and %d are used", n.pool, n.used)
			}
		case c.needsBridge(n):
			if reason := bridgeMissing(pods[name], n.ours); reason != "" {
				c.find(Finding{Node: name}, NoBridge, "%s", reason)
			}
		}
	}
}

// withoutCiliumNode finds the Nodes with a bridge pod that has waited for a CiliumNode for agentLimit.
// A Node that has just joined has none yet, and Cilium need not run on one without a bridge pod.
func (c *Cluster) withoutCiliumNode() {
	found := map[string]bool{}
	for _, p := range c.BridgePods {
		_, has := c.nodes[p.Node]
		if !has && !found[p.Node] && c.exists(p.Node) && !p.Since.IsZero() && c.Now.Sub(p.Since) >= agentLimit {
			found[p.Node] = true
			c.find(Finding{Node: p.Node}, NoCiliumNode, "the Node has no CiliumNode, for which bridge pod %s waits", p.Name)
		}
	}
}

// needsBridge reports whether a bridge must run on a node: its pool has entries of the bridge; or it
// is empty, no other ipam mode shows, and the cluster has bridge pods. The last condition is for a
// cluster in mode delegated-plugin, whose CiliumNodes look as in crd before the bridge has
// filled them. A pool with foreign entries only belongs to another component.
func (c *Cluster) needsBridge(n node) bool {
	return n.ours > 0 || n.pool == 0 && !n.otherMode && len(c.BridgePods) > 0
}

// bridgeMissing returns the reason why a node with these bridge pods, and so many addresses of the bridge, lacks a ready
// one; empty if it has one.
func bridgeMissing(pods []Pod, ours int) string {
	reason := fmt.Sprintf("%d addresses of the bridge are in the pool", ours)
	if ours == 0 {
		reason = "the pool is empty"
	}
	first := "" // of the pods that are not ready
	for _, p := range pods {
		switch {
		case p.Ready:
			return ""
		case first == "" || p.Name < first:
			first = p.Name
		}
	}
	if first == "" {
		return reason + ", and no bridge pod is on the node"
	}
	return fmt.Sprintf("%s, and bridge pod %s is not ready", reason, first)
}

// agentSilent finds the nodes whose agent does not answer marks, or does not report the addresses of
// pods as used.
func (c *Cluster) agentSilent() {
	pods := map[string][]string{}
	for _, p := range c.PodAddresses {
		unreported := func(h Holder) bool { return h.Node == p.Node && h.Slot != "" && !h.Used }
		if c.Now.Sub(p.Since) >= agentLimit && slices.ContainsFunc(c.addresses[p.IP], unreported) {
			pods[p.Node] = append(pods[p.Node], fmt.Sprintf("%s (%s)", p.Pod, p.IP))
		}
	}
	for name, n := range c.nodes {
		var facts []string
		if n.marks > 0 && !n.written.IsZero() && c.Now.Sub(n.written) >= agentLimit {
			facts = append(facts, fmt.Sprintf("%d release marks are unanswered since %s", n.marks, n.written.UTC().Format(time.RFC3339)))
		}
		if all := slices.Sorted(slices.Values(pods[name])); len(all) > 0 {
			facts = append(facts, fmt.Sprintf("%d addresses of pods are in the pool and not reported as used: %s", len(all), strings.Join(all[:min(len(all), maxNamed)], ", ")))
		}
		if len(facts) > 0 && c.exists(name) {
			c.find(Finding{Node: name}, AgentSilent, "%s", strings.Join(facts, "; "))
		}
	}
}

// PodsInPools returns the addresses of pods that the bridges have acquired, each with its pod. Those on a node with a
// bridge and without a CiliumNode, of which this is unknown, count.
func (c *Cluster) PodsInPools() (all []string) {
	for _, p := range c.PodAddresses {
		_, known := c.nodes[p.Node]
		text := fmt.Sprintf("%s of %s on %s", p.IP, p.Pod, p.Node)
		switch {
		case slices.ContainsFunc(c.addresses[p.IP], func(h Holder) bool { return h.Slot != "" }):
			all = append(all, text)
		case !known && slices.ContainsFunc(c.BridgePods, func(b Pod) bool { return b.Node == p.Node }):
			all = append(all, text+", which has a bridge and no CiliumNode: restart the node's agent, or delete its bridge pod if its pods have another network")
		}
	}
	return all
}
