package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// apiLimit is how long one request to the API server may take.
const apiLimit = 30 * time.Second

// ciliumNode is what the bridge reads of a CiliumNode (Cilium's
// pkg/k8s/apis/cilium.io/v2 and pkg/ipam/types).
type ciliumNode struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		InstanceID   string         `json:"instance-id"`
		ENI          map[string]any `json:"eni"`
		Azure        map[string]any `json:"azure"`
		AlibabaCloud map[string]any `json:"alibaba-cloud"`
		IPAM         struct {
			Pool     map[string]allocationIP `json:"pool"`
			PodCIDRs []string                `json:"podCIDRs"`
			Pools    struct {
				Requested []any `json:"requested"`
				Allocated []any `json:"allocated"`
			} `json:"pools"`
		} `json:"ipam"`
	} `json:"spec"`
	Status struct {
		IPAM struct {
			Used       map[string]allocationIP      `json:"used"`
			ReleaseIPs map[string]planner.Handshake `json:"release-ips"`
			// OperatorStatus is written by an operator that hands out addresses itself.
			OperatorStatus struct {
				Error string `json:"error"`
			} `json:"operator-status"`
		} `json:"ipam"`
	} `json:"status"`
}

type allocationIP struct {
	Owner    string `json:"owner"`
	Resource string `json:"resource"`
}

func (a allocationIP) entry() planner.Entry { return planner.Entry(a) }

// resource is what the API server calls CiliumNodes.
func resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}
}

// readNode reads a CiliumNode as the API server gives it.
func readNode(object *unstructured.Unstructured) (*ciliumNode, error) {
	data, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("CiliumNode %s: %w", object.GetName(), err)
	}
	n := &ciliumNode{}
	if err := json.Unmarshal(data, n); err != nil {
		return nil, fmt.Errorf("CiliumNode %s: %w", object.GetName(), err)
	}
	return n, nil
}

// view is the node's part of what is decided from. Malformed are the keys of
// the pool that are no addresses as the agent spells them: it will not find
// them, and they are never written.
func (n *ciliumNode) view() (v planner.View, malformed []string) {
	v.Pool, malformed = byAddress(n.Spec.IPAM.Pool, allocationIP.entry)
	v.Used, _ = byAddress(n.Status.IPAM.Used, allocationIP.entry)
	v.Release, _ = byAddress(n.Status.IPAM.ReleaseIPs, func(h planner.Handshake) planner.Handshake { return h })
	return v, malformed
}

func byAddress[From, To any](in map[string]From, convert func(From) To) (out map[netip.Addr]To, malformed []string) {
	out = map[netip.Addr]To{}
	for key, value := range in {
		ip, err := netip.ParseAddr(key)
		if err != nil || ip.String() != key || ip.Is4In6() || ip.Zone() != "" {
			malformed = append(malformed, key)
			continue
		}
		out[ip] = convert(value)
	}
	slices.Sort(malformed)
	return out, malformed
}

// nodes is the CiliumNode of one name at the API server.
type nodes struct {
	client dynamic.ResourceInterface
	name   string
}

// get reads it as it is now.
func (n nodes) get(ctx context.Context) (*ciliumNode, error) {
	ctx, cancel := context.WithTimeout(ctx, apiLimit)
	defer cancel()
	object, err := n.client.Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return readNode(object)
}

// permitted asks whether spec and status may be written, by patches of nothing
// that the API server only tries (dryRun). Without the right it answers 403.
func (n nodes) permitted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiLimit)
	defer cancel()
	try := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	for _, p := range []patch{{part: ofSpec}, {part: ofStatus}} {
		_, err := n.client.Patch(ctx, n.name, types.MergePatchType, []byte("{}"), try, p.subresource()...)
		// A webhook that cannot only try makes it 400, which says nothing of rights:
		// they are looked at before any webhook is asked.
		if err != nil && !apierrors.IsBadRequest(err) {
			return err
		}
	}
	return nil
}

// patch writes what differs, if nobody has written since this version, and
// returns what it is then. A conflict is one of apierrors.IsConflict.
func (n nodes) patch(ctx context.Context, p patch) (*ciliumNode, error) {
	ctx, cancel := context.WithTimeout(ctx, apiLimit)
	defer cancel()
	body, err := json.Marshal(p.body())
	if err != nil {
		return nil, err
	}
	object, err := n.client.Patch(ctx, n.name, types.MergePatchType, body, metav1.PatchOptions{}, p.subresource()...)
	if err != nil {
		return nil, err
	}
	return readNode(object)
}
