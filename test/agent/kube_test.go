package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// kube is an administrator's client of the API server.
type kube struct{ client dynamic.Interface }

func (k *kube) of(group, version, resource string) dynamic.NamespaceableResourceInterface {
	return k.client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
}

func (k *kube) nodes() dynamic.ResourceInterface       { return k.of("", "v1", "nodes") }
func (k *kube) ciliumNodes() dynamic.ResourceInterface { return k.of("cilium.io", "v2", "ciliumnodes") }

func (k *kube) pods() dynamic.ResourceInterface {
	return k.of("", "v1", "pods").Namespace(podNamespace)
}

func newKube(t *testing.T, kubeconfig string) *kube {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	config.Timeout = 10 * time.Second
	config.QPS = -1                           // no client-side rate limit
	config.WarningHandler = rest.NoWarnings{} // about fields of Cilium's CRDs
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	return &kube{client}
}

// ready gets a namespace that every API server has.
func (k *kube) ready() error {
	_, err := k.of("", "v1", "namespaces").Get(context.Background(), "kube-system", metav1.GetOptions{})
	return err
}

// createKinds creates Cilium's CRDs, as its operator does.
func (k *kube) createKinds(t *testing.T, built string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(built, "crds", "*.yaml"))
	must(t, err)
	if len(files) == 0 {
		t.Fatalf("no CRDs in %s/crds; run test/agent/build.sh", built)
	}
	for _, file := range files {
		k.apply(t, file)
	}
	mustEventually(t, "Cilium's CRDs to be established", time.Minute, func() error {
		list, err := k.of("apiextensions.k8s.io", "v1", "customresourcedefinitions").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, kind := range list.Items {
			if !established(kind) {
				return fmt.Errorf("%s is not established", kind.GetName())
			}
		}
		return nil
	})
}

func established(kind unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(kind.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}

// apply creates the objects of a file.
func (k *kube) apply(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(object.Object) == 0 {
			continue // comments only
		}
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		var to dynamic.ResourceInterface = k.client.Resource(resource)
		if namespace := object.GetNamespace(); namespace != "" {
			to = k.client.Resource(resource).Namespace(namespace)
		}
		if _, err := to.Create(t.Context(), &object, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

// createNode registers the node, as its kubelet does.
func (k *kube) createNode(t *testing.T, ips []netip.Addr) {
	t.Helper()
	addresses := []any{map[string]any{"type": "Hostname", "address": nodeName}}
	for _, ip := range ips {
		addresses = append(addresses, map[string]any{"type": "InternalIP", "address": ip.String()})
	}
	node := object("v1", "Node", nodeName)
	created, err := k.nodes().Create(t.Context(), node, metav1.CreateOptions{})
	must(t, err)
	created.Object["status"] = map[string]any{
		"addresses":  addresses,
		"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
	}
	_, err = k.nodes().UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	must(t, err)
}

// createPod creates a pod, unless it exists, and returns its UID.
func (k *kube) createPod(ctx context.Context, name string) (string, error) {
	pod := object("v1", "Pod", name)
	pod.SetNamespace(podNamespace)
	pod.Object["spec"] = map[string]any{
		"nodeName":   nodeName,
		"containers": []any{map[string]any{"name": "app", "image": "none"}},
	}
	if _, err := k.pods().Create(ctx, pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	found, err := k.pods().Get(ctx, name, metav1.GetOptions{})
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

// ciliumNode returns the node's CiliumNode.
func (k *kube) ciliumNode(ctx context.Context) (*unstructured.Unstructured, error) {
	node, err := k.ciliumNodes().Get(ctx, nodeName, metav1.GetOptions{})
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

func object(version, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetName(name)
	return o
}
