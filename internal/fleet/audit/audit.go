package audit

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
)

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
	// addresses has the holders of each address, without NodeDeleted.
	addresses map[netip.Addr][]Holder
	nodes     []node
	// cidrs are the podCIDRs, lengths the lengths of their prefixes.
	cidrs   map[netip.Prefix][]Range
	lengths []int
	// pods are the BridgePods by node.
	pods map[string][]Pod
}

// node has the kept fields of a CiliumNode besides its addresses.
type node struct {
	name string
	// pool and used count its addresses; ours are those in the pool that the bridge wrote.
	pool, used, ours int
	// otherMode reports whether it is of another ipam mode than crd.
	otherMode bool
	malformed []malformedKey
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
	c.addresses, c.nodes = map[netip.Addr][]Holder{}, nil
	return c.addCiliumNode
}

func (c *Cluster) addCiliumNode(n *ciliumnode.Node) {
	addresses, malformed := readAddresses(n)
	summary := node{name: n.Metadata.Name, otherMode: n.OtherMode() != "", malformed: malformed}
	summary.marks, summary.written = unansweredMarks(n)
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
	c.nodes = append(c.nodes, summary)
}

// Report returns the findings about everything that was added.
func (c *Cluster) Report() Report {
	c.index()
	r := Report{CiliumNodes: len(c.nodes), Nodes: len(c.Nodes), BridgePods: len(c.BridgePods)}
	for _, n := range c.nodes {
		r.PoolAddresses += n.pool
		r.UsedAddresses += n.used
	}
	r.Findings = append([]Finding{}, slices.Concat(c.inTwoPools(), c.outsidePodCIDRs(), c.ofAnotherNode(), c.notHeld(), c.agentSilent(), c.perNode())...)
	texts, order := remedies(), map[Check]int{TwoPools: 1, OutsidePodCIDRs: 2, OfAnotherNode: 3, NotHeld: 4, AgentSilent: 5, NodeDeleted: 6, NoCiliumNode: 7, NoBridge: 8, Malformed: 9}
	for i := range r.Findings {
		r.Findings[i].Remedy = texts[r.Findings[i].Check]
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(order[a.Check], order[b.Check]), cmp.Compare(a.Node, b.Node), compareAddresses(a.Address, b.Address), cmp.Compare(a.Message, b.Message))
	})
	return r
}

func compareAddresses(a, b string) int {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		return cmp.Compare(a, b)
	}
	return x.Compare(y)
}

// holders returns the holders of an address by node, with the fact whether their Nodes exist.
func (c *Cluster) holders(ip netip.Addr) []Holder {
	all := append([]Holder{}, c.addresses[ip]...)
	for i := range all {
		all[i].NodeDeleted = !c.exists(all[i].Node)
	}
	slices.SortFunc(all, func(a, b Holder) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

func (c *Cluster) inTwoPools() []Finding {
	var found []Finding
	for ip, holders := range c.addresses {
		pools := 0
		for _, h := range holders {
			if h.InPool {
				pools++
			}
		}
		if pools > 1 {
			all := c.holders(ip)
			found = append(found, Finding{Check: TwoPools, Address: ip.String(), Holders: all, Message: fmt.Sprintf("in %d pools: %s", pools, list(all))})
		}
	}
	return found
}

func (c *Cluster) notHeld() []Finding {
	var found []Finding
	for ip, holders := range c.addresses {
		for _, h := range holders {
			if !h.Used || h.InPool {
				continue
			}
			all := c.holders(ip)
			message := "used" + by(h.UsedBy) + ", and not in the pool of this node"
			if others := slices.DeleteFunc(slices.Clone(all), func(o Holder) bool { return o.Node == h.Node }); len(others) > 0 {
				message += "; also " + list(others)
			}
			found = append(found, Finding{Check: NotHeld, Node: h.Node, Address: ip.String(), Holders: all, Message: message})
		}
	}
	return found
}

// outsidePodCIDRs returns the addresses of the bridge that are in the podCIDR of another node and, while
// any node has one in its own, those in none and the foreign ones in the podCIDR of another node. In a
// cluster in which no node has one the plugin allocates from other ranges.
func (c *Cluster) outsidePodCIDRs() []Finding {
	if c.SharedRange || len(c.cidrs) == 0 {
		return nil
	}
	var ofOthers, ifInOwn []Finding
	inOwn := false
	for ip, holders := range c.addresses {
		ranges := c.ranges(ip)
		for _, h := range holders {
			own := slices.ContainsFunc(ranges, func(r Range) bool { return r.Node == h.Node })
			inOwn = inOwn || own && h.Slot != ""
			if own || !c.exists(h.Node) || h.Slot == "" && (!h.InPool || len(ranges) == 0) {
				continue
			}
			all, other, found := c.holders(ip), "", &ifInOwn
			if len(ranges) > 0 {
				other = ranges[0].Node
			}
			if other != "" && h.Slot != "" {
				found = &ofOthers
			}
			i := slices.IndexFunc(all, func(o Holder) bool { return o.Node == h.Node })
			*found = append(*found, Finding{
				Check: OutsidePodCIDRs, Node: h.Node, OtherNode: other, Address: ip.String(), Holders: all,
				Message: fmt.Sprintf("not in the podCIDRs of this node, but in those of %s: %s", cmp.Or(other, "none"), all[i]),
			})
		}
	}
	if inOwn {
		return append(ofOthers, ifInOwn...)
	}
	return ofOthers
}

// ofAnotherNode returns the addresses in pools that belong to another node: to the node itself, or to a pod
// there, unless the CiliumNode there shows it. A pod counts if it has run for agentLimit, so that the address
// has not moved between the reads, and if Cilium runs on its node.
func (c *Cluster) ofAnotherNode() []Finding {
	byName := map[string]node{}
	for _, n := range c.nodes {
		byName[n.name] = n
	}
	var found []Finding
	add := func(ip netip.Addr, owner, claim string) {
		if !c.exists(owner) {
			return
		}
		all := c.holders(ip)
		for _, h := range all {
			// The pool of another mode, as of a cloud, may have an address that its node had before.
			if n := byName[h.Node]; h.InPool && h.Node != owner && (n.ours > 0 || !n.otherMode) {
				found = append(found, Finding{
					Check: OfAnotherNode, Node: h.Node, OtherNode: owner, Address: ip.String(), Holders: all,
					Message: fmt.Sprintf("in the pool of this node, but %s: %s", claim, h),
				})
			}
		}
	}
	for _, n := range c.nodes {
		for _, ip := range n.addresses {
			add(ip, n.name, "it is an address of node "+n.name)
		}
	}
	for _, p := range c.PodAddresses {
		_, cilium := byName[p.Node]
		shown := slices.ContainsFunc(c.addresses[p.IP], func(h Holder) bool { return h.Node == p.Node })
		if p.Ready && cilium && !shown && c.Now.Sub(p.Since) >= agentLimit {
			add(p.IP, p.Node, fmt.Sprintf("pod %s on %s has it", p.Pod, p.Node))
		}
	}
	return found
}

func (c *Cluster) exists(name string) bool {
	_, exists := c.Nodes[name]
	return exists
}

// index indexes podCIDRs by prefix and pods by node.
func (c *Cluster) index() {
	c.cidrs, c.lengths, c.pods = map[netip.Prefix][]Range{}, nil, map[string][]Pod{}
	for _, p := range c.BridgePods {
		c.pods[p.Node] = append(c.pods[p.Node], p)
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

func (c *Cluster) perNode() []Finding {
	var found []Finding
	for _, n := range c.nodes {
		switch {
		case !c.exists(n.name):
			if n.pool > 0 {
				found = append(found, Finding{
					Check: NodeDeleted, Node: n.name,
					Message: fmt.Sprintf("the Node does not exist; its CiliumNode has %d addresses in its pool, and %d are used", n.pool, n.used),
				})
			}
		case c.needsBridge(n):
			if reason := c.bridgeMissing(n); reason != "" {
				found = append(found, Finding{Check: NoBridge, Node: n.name, Message: reason})
			}
		}
		for _, m := range n.malformed {
			found = append(found, Finding{
				Check: Malformed, Node: n.name, Address: m.key,
				Message: fmt.Sprintf("%s has the key %q, which is not an address as the agent spells it", m.field, m.key),
			})
		}
	}
	return append(found, c.withoutCiliumNode()...)
}

// withoutCiliumNode returns the Nodes with a bridge pod that has waited for a CiliumNode for agentLimit.
// A Node that has just joined has none yet, and Cilium need not run on one without a bridge pod.
func (c *Cluster) withoutCiliumNode() []Finding {
	has := map[string]bool{}
	for _, n := range c.nodes {
		has[n.name] = true
	}
	waits := func(p Pod) bool { return !p.Since.IsZero() && c.Now.Sub(p.Since) >= agentLimit }
	var found []Finding
	for _, p := range c.BridgePods {
		if waits(p) && c.exists(p.Node) && !has[p.Node] {
			has[p.Node] = true // one finding
			found = append(found, Finding{Check: NoCiliumNode, Node: p.Node, Message: fmt.Sprintf("the Node has no CiliumNode, for which bridge pod %s waits", p.Name)})
		}
	}
	return found
}

// needsBridge reports whether a bridge must run on a node: its pool has entries of the bridge; or it
// is empty, no other ipam mode shows, and the cluster has bridge pods. The last condition is for a
// cluster in mode delegated-plugin, whose CiliumNodes look as in crd before the bridge has
// filled them. A pool with foreign entries only belongs to another component.
func (c *Cluster) needsBridge(n node) bool {
	return n.ours > 0 || n.pool == 0 && !n.otherMode && len(c.BridgePods) > 0
}

// bridgeMissing returns the reason why a node lacks a ready bridge; empty if it has one.
func (c *Cluster) bridgeMissing(n node) string {
	pods := c.pods[n.name]
	if slices.ContainsFunc(pods, func(p Pod) bool { return p.Ready }) {
		return ""
	}
	has := fmt.Sprintf("%d addresses of the bridge are in the pool", n.ours)
	if n.ours == 0 {
		has = "the pool is empty"
	}
	if len(pods) > 0 {
		return fmt.Sprintf("%s, and bridge pod %s is not ready", has, slices.MinFunc(pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) }).Name)
	}
	return has + ", and no bridge pod is on the node"
}
