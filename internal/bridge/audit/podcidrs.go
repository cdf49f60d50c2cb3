package audit

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// podCIDRs are the nodes of all podCIDRs. One that cannot be parsed contains nothing.
type podCIDRs map[netip.Prefix]string

func (all podCIDRs) add(name string, podCIDRs []string) {
	for _, text := range podCIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			all[prefix.Masked()] = name
		}
	}
}

// node returns the node whose podCIDR contains an address; empty for none. lengths are those of all
// podCIDRs.
func (all podCIDRs) node(ip netip.Addr, lengths []int) string {
	for _, bits := range lengths {
		if prefix, err := ip.Prefix(bits); err == nil && all[prefix] != "" {
			return all[prefix]
		}
	}
	return ""
}

// lengths returns the prefix lengths, each once.
func (all podCIDRs) lengths() []int {
	var bits []int
	for prefix := range all {
		if !slices.Contains(bits, prefix.Bits()) {
			bits = append(bits, prefix.Bits())
		}
	}
	return bits
}

// outsidePodCIDRs returns the addresses of the bridge that are in the podCIDR of another node, or in
// none while any node has one in its own. In a cluster in which no node has one the plugin allocates
// from other ranges.
func (c *Cluster) outsidePodCIDRs() []Finding {
	if c.SharedRange || len(c.cidrs) == 0 {
		return nil
	}
	lengths, fromPodCIDRs := c.cidrs.lengths(), false
	ofBridge := func(f func(ip netip.Addr, p place, of string)) {
		c.table.each(func(ip netip.Addr, p place) {
			if p.inPool && p.slot != foreignSlot {
				f(ip, p, c.cidrs.node(ip, lengths))
			}
		})
	}
	ofBridge(func(_ netip.Addr, p place, of string) { fromPodCIDRs = fromPodCIDRs || of == c.table.names[p.node] })
	var found []Finding
	ofBridge(func(ip netip.Addr, p place, of string) {
		name := c.table.names[p.node]
		if of == name || of == "" && !fromPodCIDRs || !c.exists[name] {
			return
		}
		all := c.holders(ip)
		i := slices.IndexFunc(all, func(h Holder) bool { return h.Node == name })
		found = append(found, Finding{
			Check: OutsidePodCIDRs, Node: name, Address: ip.String(), Holders: all,
			Message: fmt.Sprintf("not in the podCIDRs of this node, but in those of %s: %s", cmp.Or(of, "none"), all[i]),
		})
	})
	return found
}
