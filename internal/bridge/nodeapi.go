package bridge

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
)

// nodeAPI reads and writes the CiliumNode of one name at the API server.
type nodeAPI struct {
	resource dynamic.ResourceInterface
	name     string
}

// get reads the CiliumNode.
func (n nodeAPI) get(ctx context.Context) (*ciliumnode.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	object, err := n.resource.Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return ciliumnode.Parse(object)
}

// checkWriteAccess checks whether spec and status may be written, by empty patches with dryRun.
// Without the right the API server responds with 403.
func (n nodeAPI) checkWriteAccess(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	dryRun := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	for _, p := range []patch{{target: targetSpec}, {target: targetStatus}} {
		_, err := n.resource.Patch(ctx, n.name, types.MergePatchType, []byte("{}"), dryRun, p.subresource()...)
		// A webhook without support for dryRun makes it 400. The rights are checked before any webhook
		// is called, so 400 does not mean a missing right.
		if err != nil && !apierrors.IsBadRequest(err) {
			return err
		}
	}
	return nil
}

// patch writes a patch and returns the CiliumNode after it. If the CiliumNode has another version than
// the patch, the error is one of apierrors.IsConflict.
func (n nodeAPI) patch(ctx context.Context, p patch) (*ciliumnode.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	body, err := json.Marshal(p.body())
	if err != nil {
		return nil, err
	}
	object, err := n.resource.Patch(ctx, n.name, types.MergePatchType, body, metav1.PatchOptions{}, p.subresource()...)
	if err != nil {
		return nil, err
	}
	return ciliumnode.Parse(object)
}
