package audit

import (
	"fmt"
	"strings"
)

// Check is the name of a kind of findings. It does not change between versions.
type Check string

const (
	TwoPools        Check = "address-in-two-pools"      // an address is in the pools of several CiliumNodes
	OutsidePodCIDRs Check = "address-outside-pod-cidrs" // the pool of a CiliumNode has an address that is not in the podCIDRs of its Node
	OfAnotherNode   Check = "address-of-another-node"   // the pool of a CiliumNode has an address of another node, or of a pod there
	NotHeld         Check = "address-not-in-pool"       // a CiliumNode uses an address that is not in its pool
	AgentSilent     Check = "agent-not-responding"      // an agent does not answer release marks, or does not report the addresses of pods
	NodeDeleted     Check = "node-deleted"              // a CiliumNode has addresses in its pool, and its Node does not exist
	NoBridge        Check = "no-bridge"                 // a node needs a bridge, and no bridge pod of it is ready
	NoCiliumNode    Check = "no-cilium-node"            // a Node with a bridge pod has no CiliumNode
	Malformed       Check = "malformed-address"         // a CiliumNode has a key that is not an address as the agent spells it
)

type Finding struct {
	Check Check `json:"check"`
	// Node is the CiliumNode; empty for a finding about several, which are the Holders.
	Node string `json:"node,omitempty"`
	// OtherNode is the node to which the address belongs; empty if unknown.
	OtherNode string `json:"otherNode,omitempty"`
	// Address is the affected address; empty for none.
	Address string `json:"address,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
	// Holders are the nodes that have the address.
	Holders []Holder `json:"holders,omitempty"`
}

type Report struct {
	// CiliumNodes, Nodes and BridgePods count the objects that were read.
	CiliumNodes int `json:"ciliumNodes"`
	Nodes       int `json:"nodes"`
	BridgePods  int `json:"bridgePods"`
	// PoolAddresses and UsedAddresses count the addresses of all nodes.
	PoolAddresses int `json:"poolAddresses"`
	UsedAddresses int `json:"usedAddresses"`
	// Findings are sorted by check, node and address. It is never nil.
	Findings []Finding `json:"findings"`
}

// maxNamed limits the holders that a message names; the finding has all of them.
const maxNamed = 8

// foreign is a part of remedies: the bridge neither suspends nor removes such an entry.
const foreign = "Remove an entry that the bridge did not write from spec.ipam.pool, and find its writer (docs/operate/security.md)"

// check is a kind of findings with its remedy.
type check struct {
	of     Check
	remedy string
}

// checks returns them in the order of their findings.
func checks() []check {
	return []check{
		{TwoPools, "give each node separate ranges, or use a cluster-wide plugin (docs/install/ranges.md): before that, recreated pods get such addresses again; " +
			"then recreate the pods that use the address on the nodes for which address-outside-pod-cidrs is reported, or else on all nodes but one. " + foreign},
		{OutsidePodCIDRs, "the bridge releases the address when it is unused: recreate the pods of this node that use it. " + foreign + ". " +
			"Where it is not suspended, run delegated-ipam doctor on the node first. If a plugin is cluster-wide, or a node has its ranges from another source, use --shared-range (docs/install/ranges.md)"},
		{OfAnotherNode, "give each node separate ranges, without addresses of nodes, or use a cluster-wide plugin (docs/install/ranges.md); " +
			"then recreate the pods of this node that use the address. " + foreign},
		{NotHeld, "recreate the pod: the plugin may allocate its address to another client, and the agent drops the endpoint when it restarts"},
		{AgentSilent, "see whether cilium-agent runs on this node; if it does, restart it: after a restore of etcd it ignores its CiliumNode (docs/operate/bridge.md, After a restore of etcd)"},
		{NodeDeleted, "if the Node does not return, delete the CiliumNode; with a cluster-wide plugin, also release the node's addresses (docs/operate/operations.md, Lost nodes)"},
		{NoCiliumNode, "see whether cilium-agent runs on this node: it creates the CiliumNode when it starts"},
		{NoBridge, "start delegated-ipam-bridge on this node, or see its log: the node gets no new addresses"},
		{Malformed, "remove the key, or write the address as the agent does: the agent does not find it, and the bridge does not change it"},
	}
}

// list returns the holders as text, at most maxNamed of them.
func list(all []Holder) string {
	var names []string
	for _, h := range all[:min(len(all), maxNamed)] {
		names = append(names, h.String())
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
