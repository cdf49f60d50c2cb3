package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// kube is an administrator's client of the API server.
type kube struct{ cluster.Kube }

func (k *kube) nodes() dynamic.ResourceInterface { return k.Resource("", "v1", "nodes") }

func (k *kube) ciliumNodes() dynamic.ResourceInterface {
	return k.Resource("cilium.io", "v2", "ciliumnodes")
}

func (k *kube) pods() dynamic.ResourceInterface {
	return k.Resource("", "v1", "pods").Namespace(podNamespace)
}

// allocatablePods is how many pods the node can have: the kubelet's default.
const allocatablePods = 110

// createNode registers a node, as its kubelet does.
func (k *kube) createNode(t *testing.T, name string, ips []netip.Addr) {
	t.Helper()
	addresses := []any{map[string]any{"type": "Hostname", "address": name}}
	for _, ip := range ips {
		addresses = append(addresses, map[string]any{"type": "InternalIP", "address": ip.String()})
	}
	node := cluster.Object("v1", "Node", name)
	created, err := k.nodes().Create(t.Context(), node, metav1.CreateOptions{})
	must(t, err)
	created.Object["status"] = map[string]any{
		"addresses":   addresses,
		"conditions":  []any{map[string]any{"type": "Ready", "status": "True"}},
		"allocatable": map[string]any{"pods": strconv.Itoa(allocatablePods)},
	}
	_, err = k.nodes().UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	must(t, err)
}

// createPod creates a pod, unless it exists, and returns its UID.
func (k *kube) createPod(ctx context.Context, name string) (string, error) {
	pod := cluster.Object("v1", "Pod", name)
	pod.SetNamespace(podNamespace)
	pod.Object["spec"] = map[string]any{
		"nodeName":   nodeName,
		"containers": []any{map[string]any{"name": "app", "image": "none"}},
	}
	found, err := k.pods().Create(ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		found, err = k.pods().Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return "", err
	}
	return string(found.GetUID()), nil
}

// deletePod deletes a pod; a missing pod is a success.
func (k *kube) deletePod(ctx context.Context, name string) error {
	var now int64
	err := k.pods().Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ciliumNode returns the CiliumNode of a node.
func (k *kube) ciliumNode(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	node, err := k.ciliumNodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, errors.Join(errors.New("the CiliumNode cannot be read"), err)
	}
	return node, nil
}

// unpublish removes an address from the pool without a handshake, as the bridge must never do.
func (k *kube) unpublish(ctx context.Context, ip netip.Addr) error {
	patch := fmt.Sprintf(`{"spec":{"ipam":{"pool":{%q:null}}}}`, ip)
	_, err := k.ciliumNodes().Patch(ctx, nodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
