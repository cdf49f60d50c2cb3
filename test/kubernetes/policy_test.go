package kubernetes

import (
	"fmt"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// tokenFile is where a container has the token of its service account.
const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// testPolicy uses the tokens that the kubelet has given to the bridge and to the network program.
func (tb *testbed) testPolicy(t *testing.T) {
	own, other := tb.nodes[0].name, tb.nodes[1].name
	bridge, network := tb.tokenOf(t, tb.nodes[0], bridgeProgram()), tb.tokenOf(t, tb.nodes[0], networkProgram())
	refused, allowed := 0, 0
	for _, c := range []struct {
		name        string
		kube        cluster.Kube
		node        string
		subresource string
		patch       string
		// refusal is part of the error; empty if the patch is allowed.
		refusal string
	}{
		{"own pool", bridge, own, "", `{"spec":{"ipam":{"pool":{"192.0.2.200":{}}}}}`, ""},
		{"own release-ips", bridge, own, "status", `{"status":{"ipam":{"release-ips":{"192.0.2.200":"marked-for-release"}}}}`, ""},
		{"pool of another node", bridge, other, "", `{"spec":{"ipam":{"pool":{"192.0.2.200":{}}}}}`, "may not write the CiliumNode " + other},
		{"status of another node", bridge, other, "status", `{"status":{"ipam":{"release-ips":{"192.0.2.200":"marked-for-release"}}}}`, "may not write the CiliumNode " + other},
		{"own encryption key", bridge, own, "", `{"spec":{"encryption":{"key":7}}}`, "nothing but pool"},
		{"own addresses", bridge, own, "", `{"spec":{"addresses":[]}}`, "nothing but pool"},
		{"own podCIDRs", bridge, own, "", `{"spec":{"ipam":{"podCIDRs":["192.0.2.0/24"]}}}`, "nothing but pool"},
		{"own labels", bridge, own, "", `{"metadata":{"labels":{"a":"b"}}}`, "metadata"},
		{"own annotations", bridge, own, "", `{"metadata":{"annotations":{"a":"b"}}}`, "metadata"},
		{"own used addresses", bridge, own, "status", `{"status":{"ipam":{"used":{"192.0.2.200":{"owner":"a"}}}}}`, "nothing but release-ips"},
		{"by the network program", network, own, "", `{"spec":{"ipam":{"pool":{"192.0.2.200":{}}}}}`, "cannot patch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var subresources []string
			if c.subresource != "" {
				subresources = []string{c.subresource}
			}
			_, err := c.kube.Resource("cilium.io", "v2", "ciliumnodes").Patch(t.Context(), c.node, types.MergePatchType, []byte(c.patch),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
			switch {
			case c.refusal == "":
				allowed++
				harness.Must(t, err)
			case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refusal):
				t.Errorf("the API server answered %v; want Forbidden with %q", err, c.refusal)
			default:
				refused++
			}
		})
	}
	for _, kube := range []cluster.Kube{bridge, network} {
		harness.Must(t, createEvent(t, kube, own))
		if err := createEvent(t, kube, other); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "its own Node only") {
			t.Errorf("an Event about another node: the API server answered %v; want Forbidden", err)
		}
		allowed++
		refused++
	}
	tb.record(t, "requests with the tokens of the pods: allowed; refused", fmt.Sprintf("%d; %d", allowed, refused))
}

// createEvent returns the API server's response to an Event of the client about a node.
func createEvent(t *testing.T, kube cluster.Kube, node string) error {
	t.Helper()
	event := cluster.Object("v1", "Event", "delegated-ipam-policy-test")
	event.SetNamespace("default")
	event.Object["involvedObject"] = map[string]any{"kind": "Node", "name": node}
	_, err := kube.Resource("", "v1", "events").Namespace("default").Create(t.Context(), event, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// tokenOf returns a client with the token of a program's container.
func (tb *testbed) tokenOf(t *testing.T, n *node, p target) cluster.Kube {
	t.Helper()
	pid, err := n.find(p)
	harness.Must(t, err)
	token, err := os.ReadFile(fmt.Sprintf("/proc/%d/root%s", pid, tokenFile))
	harness.Must(t, err)
	return tb.As(t, p.name, string(token))
}
