package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

type Kube struct {
	dynamic.Interface
	http *http.Client
	host string
}

func newKube(t testing.TB, kubeconfig string) Kube {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	check.Must(t, err)
	config.Timeout = 10 * time.Second
	config.QPS = -1                           // no client-side rate limit
	config.WarningHandler = rest.NoWarnings{} // about fields of foreign CRDs
	client, err := dynamic.NewForConfig(config)
	check.Must(t, err)
	plain, err := rest.HTTPClientFor(config)
	check.Must(t, err)
	return Kube{client, plain, config.Host}
}

func (k Kube) Resource(group, version, resource string) dynamic.NamespaceableResourceInterface {
	return k.Interface.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
}

// Nodes returns the client of Nodes; the next two methods do so for their resources.
func (k Kube) Nodes() dynamic.ResourceInterface { return k.Resource("", "v1", "nodes") }

func (k Kube) CiliumNodes() dynamic.ResourceInterface {
	return k.Resource("cilium.io", "v2", "ciliumnodes")
}

func (k Kube) Pods(namespace string) dynamic.ResourceInterface {
	return k.Resource("", "v1", "pods").Namespace(namespace)
}

// Patch sends a merge patch, which is JSON or becomes it.
func Patch(ctx context.Context, in dynamic.ResourceInterface, name string, patch any, subresources ...string) error {
	text, isText := patch.(string)
	data, err := []byte(text), error(nil)
	if !isText {
		data, err = json.Marshal(patch)
	}
	if err == nil {
		_, err = in.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
	}
	return err
}

// Bind binds a ClusterRole to a service account, which is NAMESPACE:NAME.
func (k Kube) Bind(t testing.TB, role, account string) {
	t.Helper()
	namespace, name, _ := strings.Cut(account, ":")
	binding := Object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name)
	binding.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
	binding.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "namespace": namespace, "name": name}}
	check.Must(t, k.Create(t.Context(), binding))
}

// ready gets a namespace that every API server has, and its health: the controller manager gives up
// after 10 s with an API server that is not healthy.
func (k Kube) ready() error {
	if _, err := k.Resource("", "v1", "namespaces").Get(context.Background(), "kube-system", metav1.GetOptions{}); err != nil {
		return err
	}
	response, err := k.http.Get(k.host + "/healthz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /healthz: %s", response.Status)
	}
	return nil
}

// CreateKinds creates the CRDs in the files of a directory, and waits until they are established.
func (k Kube) CreateKinds(t testing.TB, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	check.Must(t, err)
	if len(files) == 0 {
		t.Fatalf("no CRDs in %s", dir)
	}
	for _, file := range files {
		k.Apply(t, file)
	}
	MustEventually(t, "the CRDs to be established", time.Minute, func() error {
		list, err := k.Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, kind := range list.Items {
			conditions, _, _ := unstructured.NestedSlice(kind.Object, "status", "conditions")
			if !slices.ContainsFunc(conditions, func(c any) bool {
				return c.(map[string]any)["type"] == "Established" && c.(map[string]any)["status"] == "True"
			}) {
				return fmt.Errorf("%s is not established", kind.GetName())
			}
		}
		return nil
	})
}

// Apply creates the objects of a YAML file.
func (k Kube) Apply(t testing.TB, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	check.Must(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(object.Object) == 0 {
			continue // comments only
		}
		if err := k.Create(t.Context(), &object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

// Create creates an object in the namespace of its metadata.
func (k Kube) Create(ctx context.Context, object *unstructured.Unstructured) error {
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	var in dynamic.ResourceInterface = k.Interface.Resource(resource)
	if namespace := object.GetNamespace(); namespace != "" {
		in = k.Interface.Resource(resource).Namespace(namespace)
	}
	_, err := in.Create(ctx, object, metav1.CreateOptions{})
	return err
}

// Object returns an object without namespace and content.
func Object(version, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetName(name)
	return o
}
