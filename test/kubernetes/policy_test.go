package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// testPolicy uses the tokens that the kubelet has given to the bridge and to the network program. Package
// network has all cases of the policies.
func (tb *testbed) testPolicy(t *testing.T) {
	own, other := tb.nodes[0].name, tb.nodes[1].name
	bridge, network := tb.tokenOf(t, tb.nodes[0], bridgeProgram()), tb.tokenOf(t, tb.nodes[0], networkProgram())
	const entry = `{"spec":{"ipam":{"pool":{"192.0.2.200":{}}}}}`
	for _, c := range []struct {
		name string
		kube cluster.Kube
		node string
		// refusal is part of the error; empty if the patch is allowed.
		refusal string
	}{
		{"own pool", bridge, own, ""},
		{"pool of another node", bridge, other, "may not write the CiliumNode " + other},
		{"by the network program", network, own, "cannot patch"},
	} {
		_, err := c.kube.CiliumNodes().Patch(t.Context(), c.node, types.MergePatchType, []byte(entry), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if c.refusal == "" {
			check.Must(t, err)
		} else if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s: the API server answered %v; want Forbidden with %q", c.name, err, c.refusal)
		}
	}
	for _, kube := range []cluster.Kube{bridge, network} {
		check.Must(t, createEvent(t, kube, own))
		if err := createEvent(t, kube, other); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "its own Node only") {
			t.Errorf("an Event about another node: the API server answered %v; want Forbidden", err)
		}
	}
}

func createEvent(t *testing.T, kube cluster.Kube, node string) error {
	t.Helper()
	event := cluster.Object("v1", "Event", "delegated-ipam-policy-test")
	event.SetNamespace("default")
	event.Object["involvedObject"] = map[string]any{"kind": "Node", "name": node}
	_, err := kube.Resource("", "v1", "events").Namespace("default").Create(t.Context(), event, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (tb *testbed) tokenOf(t *testing.T, n *node, p target) cluster.Kube {
	t.Helper()
	pid, err := n.find(p)
	check.Must(t, err)
	token, err := os.ReadFile(fmt.Sprintf("/proc/%d/root%s", pid, tokenFile))
	check.Must(t, err)
	return tb.As(t, p.name, string(token))
}

// auditReport is the JSON output of "audit"; the fields are those that the case needs.
type auditReport struct {
	CiliumNodes, Nodes, BridgePods, PoolAddresses, UsedAddresses int
	Findings                                                     []struct{ Check, Address string }
}

// audit runs the audit of delegated-ipam-bridge as an operator does, and returns its exit status.
func (tb *testbed) audit(t *testing.T) (report auditReport, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(tb.root, "bin", "delegated-ipam-bridge"), "audit", "--output=json")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(tb.dir, "admin.kubeconfig"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("audit printed %q and ended with %s: %v", out, cmd.ProcessState, err)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return report, cmd.ProcessState.ExitCode()
}

// testAudit audits the whole cluster, and again with an address in two pools.
func (tb *testbed) testAudit(t *testing.T) {
	tb.ensurePods(t)
	tb.waitRecords(t, "before the audit")
	report, code := tb.audit(t)
	if code != 0 || len(report.Findings) > 0 {
		t.Errorf("audit ended with %d: %+v; want no finding", code, report)
	}
	if report.CiliumNodes != len(tb.nodes) || report.Nodes != len(tb.nodes) || report.BridgePods != len(tb.nodes) {
		t.Errorf("audit read %+v; want %d of each object", report, len(tb.nodes))
	}
	if want := (stablePods + len(tb.nodes)*agentAddresses) * tb.families(); report.UsedAddresses != want {
		t.Errorf("audit counts %d used addresses; want %d", report.UsedAddresses, want)
	}

	pods, err := tb.running(t.Context())
	check.Must(t, err)
	ip, other := pods[0].Status.PodIP, tb.nodes[0].name
	if pods[0].Spec.NodeName == other {
		other = tb.nodes[1].name
	}
	const entry = `{"spec":{"ipam":{"pool":{%q:%s}}}}`
	check.Must(t, cluster.Patch(t.Context(), tb.CiliumNodes(), other, fmt.Sprintf(entry, ip, "{}")))
	report, code = tb.audit(t)
	var found []string
	for _, f := range report.Findings {
		found = append(found, f.Check+" "+f.Address)
	}
	if want := []string{"address-in-two-pools " + ip, "address-outside-pod-cidrs " + ip}; code != 3 || !slices.Equal(found, want) {
		t.Errorf("with %s in two pools audit ended with %d and found %q; want %q", ip, code, found, want)
	}
	check.Must(t, cluster.Patch(t.Context(), tb.CiliumNodes(), other, fmt.Sprintf(entry, ip, "null")))
	tb.waitRecords(t, "after the audit")
}
