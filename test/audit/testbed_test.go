package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// poolSize and usedSize are the numbers of addresses of each node.
	poolSize, usedSize = 110, 50
)

// resources are the resources of the deployed ClusterRole. accounts are the service accounts: the
// first has all rights, and each other one lacks the right to the resource at its place.
var (
	resources = []string{"ciliumnodes", "nodes", "pods"}
	accounts  = []string{"kube-system:audit", "kube-system:without-ciliumnodes", "kube-system:without-nodes", "kube-system:without-pods"}
)

// testbed is a cluster with count nodes.
type testbed struct {
	*cluster.Cluster
	count int
	// dir has the certificate of the API server.
	dir string
}

// newTestbed starts the cluster with the CRD and the RBAC rules. It skips the test outside the
// namespaces of run.sh.
func newTestbed(t *testing.T) *testbed {
	t.Helper()
	if !cluster.Namespaced() {
		t.Skip("the test needs root, etcd, kube-apiserver and separate namespaces; run 'make audit-test'")
	}
	count, err := strconv.Atoi(cmp.Or(os.Getenv("AUDIT_TEST_NODES"), "1200"))
	harness.Must(t, err)
	built := cluster.MustEnv(t, "AUDIT_TEST_DIR", "audit-test")
	dir := filepath.Join(built, "run")
	harness.Must(t, os.RemoveAll(dir))
	harness.Must(t, os.MkdirAll(dir, 0o755))
	tb := &testbed{count: count, dir: dir, Cluster: cluster.Start(t, cluster.Config{
		Dir: dir, APIServer: cluster.MustEnv(t, "AUDIT_TEST_APISERVER", "audit-test"), Host: cluster.Host, ServiceAccounts: accounts,
	})}
	tb.CreateKinds(t, filepath.Join(built, "crds"))
	role := readRole(t)
	tb.grant(t, role, accounts[0])
	for i, missing := range resources {
		tb.grant(t, without(t, role, missing), accounts[i+1])
	}
	return tb
}

// readRole returns the deployed ClusterRole.
func readRole(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	file := cluster.MustEnv(t, "AUDIT_TEST_MANIFEST", "audit-test")
	text, err := os.ReadFile(file)
	harness.Must(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		role := &unstructured.Unstructured{}
		harness.Must(t, yaml.Unmarshal([]byte(document), &role.Object))
		if role.GetKind() == "ClusterRole" {
			return role
		}
	}
	t.Fatalf("%s has no ClusterRole", file)
	return nil
}

// without returns a role without the rules of a resource, which it must have.
func without(t *testing.T, role *unstructured.Unstructured, resource string) *unstructured.Unstructured {
	t.Helper()
	out := role.DeepCopy()
	rules, _, err := unstructured.NestedSlice(out.Object, "rules")
	harness.Must(t, err)
	found := false
	for _, rule := range rules {
		rule := rule.(map[string]any)
		all := rule["resources"].([]any)
		rule["resources"] = slices.DeleteFunc(all, func(r any) bool { return r == resource })
		found = found || len(rule["resources"].([]any)) < len(all)
	}
	if !found {
		t.Fatalf("no rule is about %s", resource)
	}
	// A rule without a resource is not valid.
	rules = slices.DeleteFunc(rules, func(rule any) bool { return len(rule.(map[string]any)["resources"].([]any)) == 0 })
	harness.Must(t, unstructured.SetNestedSlice(out.Object, rules, "rules"))
	return out
}

// grant creates a role for one service account.
func (tb *testbed) grant(t *testing.T, role *unstructured.Unstructured, account string) {
	t.Helper()
	namespace, name, _ := strings.Cut(account, ":")
	role = role.DeepCopy()
	role.SetName(name)
	harness.Must(t, tb.Create(t.Context(), role))
	binding := cluster.Object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name)
	binding.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
	binding.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "namespace": namespace, "name": name}}
	harness.Must(t, tb.Create(t.Context(), binding))
}

func nodeName(i int) string { return fmt.Sprintf("worker-%05d", i) }

// address returns the n-th address of a node, in its own /24.
func address(i, n int) string { return fmt.Sprintf("10.%d.%d.%d", i/256, i%256, n+1) }

func entry(slot int) map[string]any {
	return map[string]any{"resource": fmt.Sprintf("delegated-ipam/ciliumnode-%d", slot)}
}

// createNodes creates the Nodes, CiliumNodes and ready bridge pods.
func (tb *testbed) createNodes(t *testing.T) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for i := range tb.count {
		group.Go(func() error {
			name := nodeName(i)
			node := cluster.Object("v1", "Node", name)
			node.Object["spec"] = map[string]any{"podCIDRs": []any{address(i, -1) + "/24"}, "podCIDR": address(i, -1) + "/24"}
			pool, used := map[string]any{}, map[string]any{}
			for n := range poolSize {
				pool[address(i, n)] = entry(n)
				if n < usedSize {
					used[address(i, n)] = map[string]any{"owner": fmt.Sprintf("default/pod-%d", n), "resource": entry(n)["resource"]}
				}
			}
			ciliumNode := cluster.Object("cilium.io/v2", "CiliumNode", name)
			ciliumNode.Object["spec"] = map[string]any{"ipam": map[string]any{"pool": pool}}
			pod := cluster.Object("v1", "Pod", "bridge-"+name)
			pod.SetNamespace("kube-system")
			pod.SetLabels(map[string]string{"app.kubernetes.io/name": "delegated-ipam-bridge"})
			pod.Object["spec"] = map[string]any{
				"nodeName": name, "terminationGracePeriodSeconds": int64(0),
				"containers": []any{map[string]any{"name": "bridge", "image": "delegated-ipam-bridge:local"}},
			}
			for _, object := range []*unstructured.Unstructured{node, ciliumNode, pod} {
				if err := tb.Create(ctx, object); err != nil {
					return fmt.Errorf("create %s %s: %w", object.GetKind(), name, err)
				}
			}
			status := map[string]any{"status": map[string]any{"ipam": map[string]any{"used": used}}}
			if err := patch(tb.ciliumNodes(), t, name, status, "status"); err != nil {
				return err
			}
			return patch(tb.pods(), t, "bridge-"+name, ready("True"), "status")
		})
	}
	harness.Must(t, group.Wait())
}

func (tb *testbed) ciliumNodes() dynamic.ResourceInterface {
	return tb.Resource("cilium.io", "v2", "ciliumnodes")
}

func (tb *testbed) pods() dynamic.ResourceInterface {
	return tb.Resource("", "v1", "pods").Namespace("kube-system")
}

func ready(status string) map[string]any {
	return map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": status}}}}
}

func patch(in dynamic.ResourceInterface, t *testing.T, name string, body map[string]any, subresources ...string) error {
	data, err := json.Marshal(body)
	if err == nil {
		_, err = in.Patch(t.Context(), name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
	}
	return err
}

func (tb *testbed) patchPool(t *testing.T, i int, entries map[string]any) {
	t.Helper()
	harness.Must(t, patch(tb.ciliumNodes(), t, nodeName(i), map[string]any{"spec": map[string]any{"ipam": map[string]any{"pool": entries}}}))
}

func (tb *testbed) patchUsed(t *testing.T, i int, entries map[string]any) {
	t.Helper()
	harness.Must(t, patch(tb.ciliumNodes(), t, nodeName(i), map[string]any{"status": map[string]any{"ipam": map[string]any{"used": entries}}}, "status"))
}

func (tb *testbed) setPodReady(t *testing.T, i int, status string) {
	t.Helper()
	harness.Must(t, patch(tb.pods(), t, "bridge-"+nodeName(i), ready(status), "status"))
}

func (tb *testbed) deleteObject(t *testing.T, resource, namespace, name string) {
	t.Helper()
	var in dynamic.ResourceInterface = tb.Resource("", "v1", resource)
	if namespace != "" {
		in = tb.Resource("", "v1", resource).Namespace(namespace)
	}
	harness.Must(t, in.Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// expireLists makes the pages of every list so far unavailable: etcd drops its older revisions, and the
// API server its cache, by a restart.
func (tb *testbed) expireLists(t *testing.T) {
	t.Helper()
	tb.patchPool(t, 0, map[string]any{}) // an older revision than the present one exists
	var status struct{ Header struct{ Revision string } }
	etcd(t, "/v3/maintenance/status", `{}`, &status)
	etcd(t, "/v3/kv/put", `{"key":"eA==","value":"eA=="}`, &status)
	etcd(t, "/v3/kv/compaction", fmt.Sprintf(`{"revision":%q}`, status.Header.Revision), &struct{}{})
	tb.restartAPIServer(t)
}

// etcd sends a request to the JSON gateway of etcd.
func etcd(t *testing.T, path, body string, into any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:2379"+path, bytes.NewReader([]byte(body)))
	harness.Must(t, err)
	response, err := http.DefaultClient.Do(request)
	harness.Must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	harness.Must(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("etcd %s: %s: %s", path, response.Status, text)
	}
	harness.Must(t, json.Unmarshal(text, into))
}

func (tb *testbed) restartAPIServer(t *testing.T) {
	t.Helper()
	tb.APIServer.End(15)
	tb.APIServer.MustStart(t)
	tb.WaitReady(t)
}
