package nodehistory

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// IPPools is the store of whereabouts: the IPPools of a namespace.
type IPPools struct {
	client dynamic.ResourceInterface
	// namespace is shown in errors.
	namespace string
}

// NewIPPools returns the store of a namespace. It sends no request.
func NewIPPools(client dynamic.Interface, namespace string) IPPools {
	resource := schema.GroupVersionResource{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Resource: "ippools"}
	return IPPools{client.Resource(resource).Namespace(namespace), namespace}
}

// ContainerIDs implements PluginStore. A namespace without an IPPool is an error: it may be the wrong
// one.
func (p IPPools) ContainerIDs(ctx context.Context) (map[string]bool, error) {
	list, err := p.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list IPPools of namespace %s: %w", p.namespace, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("namespace %s has no IPPool; expected the namespace of whereabouts' IPPools, by --whereabouts-namespace", p.namespace)
	}
	ids := map[string]bool{}
	for _, pool := range list.Items {
		allocations, _, err := unstructured.NestedMap(pool.Object, "spec", "allocations")
		if err != nil {
			return nil, fmt.Errorf("IPPool %s: %w", pool.GetName(), err)
		}
		for offset, a := range allocations {
			fields, _ := a.(map[string]any)
			id, ok := fields["id"].(string)
			if !ok {
				return nil, fmt.Errorf("IPPool %s: allocation %s has no id", pool.GetName(), offset)
			}
			ids[id] = true
		}
	}
	return ids, nil
}
