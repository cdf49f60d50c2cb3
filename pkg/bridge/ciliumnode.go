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

// apiLimit is the time limit of one request to the API server.
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
			// OperatorStatus is written by an operator that allocates addresses itself.
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

// ciliumNodes returns the resource of CiliumNodes.
func ciliumNodes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}
}

// readNode decodes a CiliumNode.
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

// view returns the node's part of a view. malformed are the keys of the pool that are not addresses as
// the agent spells them: the agent does not find them, and the bridge never writes them.
func (n *ciliumNode) view() (v planner.View, malformed []string) {
	v.Pool, malformed = byAddress(n.Spec.IPAM.Pool, allocationIP.entry)
	v.Used, _ = byAddress(n.Status.IPAM.Used, allocationIP.entry)
	v.Handshakes, _ = byAddress(n.Status.IPAM.ReleaseIPs, func(h planner.Handshake) planner.Handshake { return h })
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

// nodeAPI reads and writes the CiliumNode of one name at the API server.
type nodeAPI struct {
	resource dynamic.ResourceInterface
	name     string
}

// get reads the CiliumNode.
func (n nodeAPI) get(ctx context.Context) (*ciliumNode, error) {
	ctx, cancel := context.WithTimeout(ctx, apiLimit)
	defer cancel()
	object, err := n.resource.Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return readNode(object)
}

// checkWriteAccess checks whether spec and status may be written, by empty patches with dryRun. Without
// the right the API server answers 403.
func (n nodeAPI) checkWriteAccess(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiLimit)
	defer cancel()
	dryRun := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	for _, p := range []patch{{target: targetSpec}, {target: targetStatus}} {
		_, err := n.resource.Patch(ctx, n.name, types.MergePatchType, []byte("{}"), dryRun, p.subresource()...)
		// A webhook without support for dryRun makes it 400. The rights are checked before any webhook
		// is called, so that is not a missing right.
		if err != nil && !apierrors.IsBadRequest(err) {
			return err
		}
	}
	return nil
}

// patch writes a patch and returns the CiliumNode after it. If the CiliumNode has another version than
// the patch, the error is one of apierrors.IsConflict.
func (n nodeAPI) patch(ctx context.Context, p patch) (*ciliumNode, error) {
	ctx, cancel := context.WithTimeout(ctx, apiLimit)
	defer cancel()
	body, err := json.Marshal(p.body())
	if err != nil {
		return nil, err
	}
	object, err := n.resource.Patch(ctx, n.name, types.MergePatchType, body, metav1.PatchOptions{}, p.subresource()...)
	if err != nil {
		return nil, err
	}
	return readNode(object)
}
