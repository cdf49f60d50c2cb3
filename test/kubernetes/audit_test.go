package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// auditReport is the JSON output of "audit"; the fields are those that the case needs.
type auditReport struct {
	CiliumNodes, Nodes, BridgePods, PoolAddresses, UsedAddresses int
	Findings                                                     []struct{ Check, Address string }
}

// auditHolder is the JSON output of "holder" for an address.
type auditHolder struct {
	Address, State string
	Holders        []struct{ Node, UsedBy string }
}

// bridgeCommand runs a command of delegated-ipam-bridge as an operator does, decodes its JSON output,
// and returns its exit status.
func (tb *testbed) bridgeCommand(t *testing.T, into any, args ...string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(tb.root, "bin", "delegated-ipam-bridge"), append(args, "--output=json")...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(tb.dir, "admin.kubeconfig"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%v printed %q and ended with %s: %v", cmd.Args, out, cmd.ProcessState, err)
	}
	return cmd.ProcessState.ExitCode()
}

// testAudit runs the commands for the whole cluster, and again with an address in two pools.
func (tb *testbed) testAudit(t *testing.T) {
	tb.ensurePods(t)
	tb.waitRecords(t, "before the audit")
	var report auditReport
	if code := tb.bridgeCommand(t, &report, "audit"); code != 0 || len(report.Findings) > 0 {
		t.Errorf("audit ended with %d: %+v; want no finding", code, report)
	}
	if report.CiliumNodes != len(tb.nodes) || report.Nodes != len(tb.nodes) || report.BridgePods != len(tb.nodes) {
		t.Errorf("audit read %+v; want %d of each object", report, len(tb.nodes))
	}
	if want := (stablePods + len(tb.nodes)*agentAddresses) * tb.families(); report.UsedAddresses != want {
		t.Errorf("audit counts %d used addresses; want %d", report.UsedAddresses, want)
	}
	tb.record(t, "audit: addresses in pools; used; findings", fmt.Sprintf("%d; %d; %d", report.PoolAddresses, report.UsedAddresses, len(report.Findings)))

	pod := tb.stablePodOn(t, tb.nodes[0])
	tb.checkHolder(t, pod.Status.PodIP, 0, tb.nodes[0].name)
	tb.setPoolEntry(t, tb.nodes[1], pod.Status.PodIP, "{}")
	report = auditReport{}
	if code := tb.bridgeCommand(t, &report, "audit"); code != 3 || len(report.Findings) != 1 ||
		report.Findings[0].Check != "address-in-two-pools" || report.Findings[0].Address != pod.Status.PodIP {
		t.Errorf("with %s in two pools audit ended with %d: %+v; want this finding", pod.Status.PodIP, code, report)
	}
	tb.checkHolder(t, pod.Status.PodIP, 3, tb.nodes[0].name, tb.nodes[1].name)
	tb.setPoolEntry(t, tb.nodes[1], pod.Status.PodIP, "null")
	tb.waitRecords(t, "after the audit")
}

// stablePodOn returns a pod on a node.
func (tb *testbed) stablePodOn(t *testing.T, n *node) corev1.Pod {
	t.Helper()
	pods, err := tb.running(t.Context())
	harness.Must(t, err)
	for _, p := range pods {
		if isStable(p) && p.Spec.NodeName == n.name {
			return p
		}
	}
	t.Fatalf("no pod of the Deployment runs on %s", n.name)
	return corev1.Pod{}
}

// checkHolder wants "holder" to end with a status and to name the nodes.
func (tb *testbed) checkHolder(t *testing.T, ip string, want int, nodes ...string) {
	t.Helper()
	var all []auditHolder
	code := tb.bridgeCommand(t, &all, "holder", ip)
	named := map[string]bool{}
	for _, a := range all {
		for _, h := range a.Holders {
			named[h.Node] = true
		}
	}
	ok := code == want && len(named) == len(nodes)
	for _, n := range nodes {
		ok = ok && named[n]
	}
	if !ok {
		t.Errorf("holder %s ended with %d: %+v; want %d and %v", ip, code, all, want, nodes)
	}
}

// setPoolEntry writes an entry of a node's pool as a foreign client; null removes it.
func (tb *testbed) setPoolEntry(t *testing.T, n *node, ip, entry string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"ipam":{"pool":{%q:%s}}}}`, ip, entry)
	_, err := tb.ciliumNodes().Patch(t.Context(), n.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	harness.Must(t, err)
}
