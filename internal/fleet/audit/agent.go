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

// unansweredMarks returns the number of marks that the agent has not answered, and since when: the last
// write of the status.
func unansweredMarks(n *ciliumnode.Node) (marks int, since time.Time) {
	for _, state := range n.Status.IPAM.ReleaseIPs {
		if state == planner.MarkedForRelease {
			marks++
		}
	}
	for _, m := range n.Metadata.ManagedFields {
		if m.Subresource == "status" && m.Time != nil && m.Time.After(since) {
			since = m.Time.Time
		}
	}
	return marks, since
}

// agentSilent returns the nodes whose agent does not answer marks, or does not report the addresses of
// pods as used.
func (c *Cluster) agentSilent() []Finding {
	pods := map[string][]string{}
	for _, p := range c.PodAddresses {
		if c.Now.Sub(p.Since) < agentLimit {
			continue
		}
		unreported := func(h Holder) bool { return h.Node == p.Node && h.Slot != "" && !h.Used }
		if slices.ContainsFunc(c.addresses[p.IP], unreported) {
			pods[p.Node] = append(pods[p.Node], fmt.Sprintf("%s (%s)", p.Pod, p.IP))
		}
	}
	var found []Finding
	for _, n := range c.nodes {
		var facts []string
		if n.marks > 0 && !n.written.IsZero() && c.Now.Sub(n.written) >= agentLimit {
			facts = append(facts, fmt.Sprintf("%d release marks are unanswered since %s", n.marks, n.written.UTC().Format(time.RFC3339)))
		}
		if all := pods[n.name]; len(all) > 0 {
			slices.SortFunc(all, cmp.Compare)
			names := strings.Join(all[:min(len(all), maxNamed)], ", ")
			facts = append(facts, fmt.Sprintf("%d addresses of pods are in the pool and not reported as used: %s", len(all), names))
		}
		if len(facts) > 0 && c.exists(n.name) {
			found = append(found, Finding{Check: AgentSilent, Node: n.name, Message: strings.Join(facts, "; ")})
		}
	}
	return found
}
