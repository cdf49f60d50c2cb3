// Package ciliumnode has the part of Cilium's CiliumNode that the bridge uses.
package ciliumnode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// Node has the fields of a CiliumNode that the bridge and its audit read (Cilium's
// pkg/k8s/apis/cilium.io/v2 and pkg/ipam/types).
type Node struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Addresses    []Address      `json:"addresses"`
		InstanceID   string         `json:"instance-id"`
		ENI          map[string]any `json:"eni"`
		Azure        map[string]any `json:"azure"`
		AlibabaCloud map[string]any `json:"alibaba-cloud"`
		IPAM         struct {
			// The following take precedence over the flags of these names; 0 is unset.
			MinAllocate       int `json:"min-allocate"`
			PreAllocate       int `json:"pre-allocate"`
			MaxAllocate       int `json:"max-allocate"`
			MaxAboveWatermark int `json:"max-above-watermark"`

			Pool     map[string]planner.Entry `json:"pool"`
			PodCIDRs []string                 `json:"podCIDRs"`
			Pools    struct {
				Requested []any `json:"requested"`
				Allocated []any `json:"allocated"`
			} `json:"pools"`
		} `json:"ipam"`
	} `json:"spec"`
	Status struct {
		IPAM struct {
			Used       map[string]planner.Entry     `json:"used"`
			ReleaseIPs map[string]planner.Handshake `json:"release-ips"`
			// OperatorStatus is written by an operator that allocates addresses itself.
			OperatorStatus struct {
				Error string `json:"error"`
			} `json:"operator-status"`
		} `json:"ipam"`
	} `json:"status"`
}

// Address is an address of the node itself. Cilium gives it the type of the Node's, or CiliumInternalIP for
// its router.
type Address struct {
	Type string `json:"type"`
	IP   string `json:"ip"`
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (n *Node) GetObjectMeta() metav1.Object { return &n.Metadata }

func Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}
}

// Parse decodes a CiliumNode. The error names it.
func Parse(object *unstructured.Unstructured) (*Node, error) {
	n := &Node{}
	data, err := object.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(data, n)
	}
	if err != nil {
		return nil, fmt.Errorf("CiliumNode %s: %w", object.GetName(), err)
	}
	return n, nil
}

// Observed returns the node's part of an observation. malformed are the keys of the pool that are not addresses as
// the agent spells them, sorted: the agent does not find them, and the bridge never writes them.
func (n *Node) Observed() (o planner.Observed, malformed []string) {
	o.Pool, malformed = byAddress(n.Spec.IPAM.Pool)
	o.Used, _ = byAddress(n.Status.IPAM.Used)
	o.Handshakes, _ = byAddress(n.Status.IPAM.ReleaseIPs)
	return o, malformed
}

// maxSlots limits each number of the settings: no node has more pods, and a plan has an action for each missing slot.
const maxSlots = 1 << 16

// Settings returns the settings of the CiliumNode, which mean the same as for Cilium's operator, and the
// flags for those that it does not set.
func (n *Node) Settings(flags planner.Settings) planner.Settings {
	own := n.Spec.IPAM
	flags.MinAllocate = cmp.Or(own.MinAllocate, flags.MinAllocate)
	if own.PreAllocate != 0 {
		flags.PreAllocate, flags.MaxPods = own.PreAllocate, 0
	}
	flags.MaxAllocate = cmp.Or(own.MaxAllocate, flags.MaxAllocate)
	if flags.MaxPods > 0 { // there is a slot for each pod, so the flag would acquire some for none
		flags.MaxAboveWatermark = 0
	}
	flags.MaxAboveWatermark = cmp.Or(own.MaxAboveWatermark, flags.MaxAboveWatermark)
	for _, n := range []*int{&flags.MinAllocate, &flags.PreAllocate, &flags.MaxAllocate, &flags.MaxAboveWatermark} {
		*n = min(*n, maxSlots)
	}
	return flags
}

func byAddress[V any](in map[string]V) (out map[netip.Addr]V, malformed []string) {
	out = map[netip.Addr]V{}
	for key, value := range in {
		ip, wellFormed := ParseAddress(key)
		if !wellFormed {
			malformed = append(malformed, key)
			continue
		}
		out[ip] = value
	}
	slices.Sort(malformed)
	return out, malformed
}

// ParseAddress returns the address of a map key, without zone and as IPv4 if it is IPv4-mapped; the
// zero Addr if the key is not an address. wellFormed reports whether it is spelled as the agent spells
// addresses.
func ParseAddress(key string) (ip netip.Addr, wellFormed bool) {
	parsed, err := netip.ParseAddr(key)
	if err != nil {
		return netip.Addr{}, false
	}
	ip = parsed.Unmap().WithZone("")
	return ip, ip.String() == key
}

// OtherMode returns the part of a CiliumNode that shows another ipam mode than crd; empty for none. In
// crd mode the agent leaves these fields unchanged, so the fields of a previous mode stay until the
// CiliumNode is created again. One that no operator has written to yet looks like one of mode crd
// (docs/install/bridge.md, Limits).
func (n *Node) OtherMode() string {
	ipam := n.Spec.IPAM
	switch {
	case len(ipam.PodCIDRs) > 0:
		return fmt.Sprintf("spec.ipam.podCIDRs %v, as of mode cluster-pool or kubernetes", ipam.PodCIDRs)
	case len(ipam.Pools.Requested)+len(ipam.Pools.Allocated) > 0:
		return "spec.ipam.pools, as of mode multi-pool"
	case len(n.Spec.ENI) > 0:
		return "spec.eni, as of mode eni"
	case len(n.Spec.Azure) > 0:
		return "spec.azure, as of mode azure"
	case len(n.Spec.AlibabaCloud) > 0:
		return "spec.alibaba-cloud, as of mode alibabacloud"
	case n.Spec.InstanceID != "":
		return fmt.Sprintf("spec.instance-id %q, as of a cloud's mode", n.Spec.InstanceID)
	case n.Status.IPAM.OperatorStatus.Error != "":
		return fmt.Sprintf("status.ipam.operator-status %q, as of a mode in which Cilium's operator allocates addresses", n.Status.IPAM.OperatorStatus.Error)
	default:
		return ""
	}
}
