package network

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const otherNode = "worker-2"

// TestPolicies sends requests with the token of a pod on a node. It is bound to this node by the
// policies of the bridge and of the network program, each without the other.
func TestPolicies(t *testing.T) {
	tb := newTestbed(t)
	tb.CreateKinds(t, cluster.MustEnv(t, "NETWORK_TEST_CRDS", "network-test"))
	for _, name := range []string{nodeName, otherNode} {
		check.Must(t, tb.Create(t.Context(), cluster.Object("v1", "Node", name)))
		tb.createCiliumNode(t, name)
		check.Must(t, tb.Create(t.Context(), event("of-"+name, name)))
	}
	for _, program := range []string{"bridge", "network"} {
		if program == "bridge" {
			tb.Apply(t, manifest(t, "bridge/rbac.yaml"))
		}
		t.Run(program, func(t *testing.T) {
			tb.Apply(t, manifest(t, program+"/admission-policy.yaml"))
			kube := tb.podClient(t, "delegated-ipam-"+program)
			cluster.MustEventually(t, "the policy to work", limit, func() error {
				if err := kube.Create(t.Context(), event("probe", otherNode)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "its own Node only") {
					return fmt.Errorf("an Event about another node: %w", err)
				}
				return nil
			})
			testEvents(t, kube)
			if program == "bridge" {
				tb.testCiliumNodes(t, kube)
			}
		})
		for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
			check.Must(t, tb.Resource("admissionregistration.k8s.io", "v1", resource).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		}
	}
}

func testEvents(t *testing.T, kube cluster.Kube) {
	own := fmt.Sprintf(`{"involvedObject":{"kind":"Node","name":%q}}`, nodeName)
	for name, c := range map[string]struct {
		event, patch string
		allowed      bool
	}{
		"count of an own one":            {"of-" + nodeName, `{"count":2}`, true},
		"text of another node's":         {"of-" + otherNode, `{"message":"rewritten"}`, false},
		"another node's, made our own":   {"of-" + otherNode, own, false},
		"an own one, made another's":     {"of-" + nodeName, strings.Replace(own, nodeName, otherNode, 1), false},
		"an own one, made that of a pod": {"of-" + nodeName, strings.Replace(own, "Node", "Pod", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kube.Resource("", "v1", "events").Namespace("default").Patch(t.Context(), c.event, types.MergePatchType, []byte(c.patch), dryRun)
			want(t, err, c.allowed, "its own Node only")
		})
	}
}

var dryRun = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}

// testCiliumNodes patches CiliumNodes, among them what others own in it (metadata.managedFields).
func (tb *testbed) testCiliumNodes(t *testing.T, kube cluster.Kube) {
	status := []string{"status"}
	const entry = `{"spec":{"ipam":{"pool":{"192.0.2.9":{"resource":"delegated-ipam/ciliumnode-1"}}}}}`
	nodes := kube.CiliumNodes()
	current, err := nodes.Get(t.Context(), nodeName, metav1.GetOptions{})
	check.Must(t, err)
	// without returns a patch that removes what the agent owns at a path.
	without := func(path ...string) string {
		changed := current.DeepCopy()
		list, _, err := unstructured.NestedSlice(changed.Object, "metadata", "managedFields")
		check.Must(t, err)
		for _, m := range list {
			if m := m.(map[string]any); m["manager"] == "agent" && m["subresource"] == nil {
				if _, found, err := unstructured.NestedMap(m, append([]string{"fieldsV1"}, path...)...); !found || err != nil {
					t.Fatalf("the agent does not own %q (%v)", path, err)
				}
				unstructured.RemoveNestedField(m, append([]string{"fieldsV1"}, path...)...)
			}
		}
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": list}})
		check.Must(t, err)
		return string(text)
	}
	for name, c := range map[string]struct {
		node, patch, refusal string
		subresources         []string
	}{
		"pool":                         {nodeName, entry, "", nil},
		"entries of another manager":   {nodeName, `{"spec":{"ipam":{"pool":null}}}`, "", nil},
		"mark of the agent":            {nodeName, `{"status":{"ipam":{"release-ips":{"192.0.2.1":"released"}}}}`, "", status},
		"used addresses":               {nodeName, `{"status":{"ipam":{"used":null}}}`, "nothing but release-ips", status},
		"pool of another node":         {otherNode, entry, "may not write the CiliumNode " + otherNode, nil},
		"addresses":                    {nodeName, `{"spec":{"addresses":[]}}`, "nothing but pool", nil},
		"podCIDRs":                     {nodeName, `{"spec":{"ipam":{"podCIDRs":["192.0.2.0/24"]}}}`, "nothing but pool", nil},
		"encryption key":               {nodeName, `{"spec":{"encryption":{"key":7}}}`, "nothing but pool", nil},
		"labels":                       {nodeName, `{"metadata":{"labels":{"zone":"b"}}}`, "metadata", nil},
		"annotations":                  {nodeName, `{"metadata":{"annotations":{"a":"b"}}}`, "metadata", nil},
		"status of another node":       {otherNode, `{"status":{"ipam":{"release-ips":{"192.0.2.1":"released"}}}}`, "may not write the CiliumNode " + otherNode, status},
		"managers cleared":             {nodeName, `{"metadata":{"managedFields":[{}]}}`, "managers", nil},
		"managers cleared with a pool": {nodeName, strings.TrimSuffix(entry, "}") + `,"metadata":{"managedFields":[{}]}}`, "managers", nil},
		"labels of a manager":          {nodeName, without("f:metadata", "f:labels"), "managers", nil},
		"spec of a manager":            {nodeName, without("f:spec"), "managers", nil},
		"addresses of a manager":       {nodeName, without("f:spec", "f:addresses"), "managers", nil},
		"podCIDRs of a manager":        {nodeName, without("f:spec", "f:ipam", "f:podCIDRs"), "managers", nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nodes.Patch(t.Context(), c.node, types.MergePatchType, []byte(c.patch), dryRun, c.subresources...)
			want(t, err, c.refusal == "", c.refusal)
		})
	}
}

func want(t *testing.T, err error, allowed bool, refusal string) {
	t.Helper()
	if allowed {
		check.Must(t, err)
	} else if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refusal) {
		t.Errorf("the API server answered %v; want Forbidden with %q", err, refusal)
	}
}

// createCiliumNode creates a CiliumNode of which two managers own fields: the agent, and one that owns
// the entries of a large pool and no more.
func (tb *testbed) createCiliumNode(t *testing.T, name string) {
	n := cluster.Object("cilium.io/v2", "CiliumNode", name)
	n.SetLabels(map[string]string{"zone": "a"})
	n.Object["spec"] = map[string]any{"addresses": []any{map[string]any{"ip": "198.51.100.1", "type": "InternalIP"}}, "ipam": map[string]any{"podCIDRs": []any{first}}}
	_, err := tb.CiliumNodes().Create(t.Context(), n, metav1.CreateOptions{FieldManager: "agent"})
	check.Must(t, err)
	pool := map[string]any{}
	for i := range 250 {
		pool[fmt.Sprintf("192.0.2.%d", i)] = map[string]any{"resource": "a"}
	}
	patch := func(manager string, object map[string]any, subresources ...string) {
		text, err := json.Marshal(object)
		check.Must(t, err)
		_, err = tb.CiliumNodes().Patch(t.Context(), name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: manager}, subresources...)
		check.Must(t, err)
	}
	patch("other", map[string]any{"spec": map[string]any{"ipam": map[string]any{"pool": pool}}})
	patch("agent", map[string]any{"status": map[string]any{"ipam": map[string]any{"used": pool, "release-ips": map[string]any{"192.0.2.1": "ready-for-release"}}}}, "status")
}

func event(name, node string) *unstructured.Unstructured {
	e := cluster.Object("v1", "Event", name)
	e.SetNamespace("default")
	e.Object["involvedObject"] = map[string]any{"kind": "Node", "name": node}
	e.Object["message"], e.Object["reason"], e.Object["type"] = "text", "Test", "Warning"
	return e
}

// podClient returns a client with the token of a pod of a service account on the node.
func (tb *testbed) podClient(t *testing.T, account string) cluster.Kube {
	pod := cluster.Object("v1", "Pod", account)
	pod.SetNamespace("kube-system")
	pod.Object["spec"] = map[string]any{"nodeName": nodeName, "serviceAccountName": account, "containers": []any{map[string]any{"name": "a", "image": "a"}}}
	check.Must(t, tb.Create(t.Context(), pod))
	request := cluster.Object("authentication.k8s.io/v1", "TokenRequest", account)
	request.Object["spec"] = map[string]any{"boundObjectRef": map[string]any{"kind": "Pod", "apiVersion": "v1", "name": account}, "expirationSeconds": int64(time.Hour / time.Second)}
	answer, err := tb.Resource("", "v1", "serviceaccounts").Namespace("kube-system").Create(t.Context(), request, metav1.CreateOptions{}, "token")
	check.Must(t, err)
	token, _, err := unstructured.NestedString(answer.Object, "status", "token")
	check.Must(t, err)
	return tb.As(t, account, token)
}
