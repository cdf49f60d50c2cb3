package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// testRecreated drains a node, deletes its Node and starts the machine again: the Node gets another
// podCIDR, and the disk still has the journal and the leases of the old one.
func (tb *testbed) testRecreated(t *testing.T) {
	tb.ensurePods(t)
	tb.waitRecords(t, "before the Node is deleted")
	n := tb.nodes[1]
	before := tb.mustPodCIDRs(t, n)
	tb.mustKubectl(t, "drain", n.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--disable-eviction")
	n.powerOff()
	tb.mustKubectl(t, "delete", "node", n.name)
	cluster.MustEventually(t, "the CiliumNode of "+n.name+" to be deleted", convergeTimeout, func() error {
		_, err := tb.ciliumNodes().Get(t.Context(), n.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it exists"), err)
	})
	n.boot(t)
	after := tb.mustPodCIDRs(t, n)
	if slices.Equal(after, before) {
		t.Fatalf("the new Node has the podCIDRs %v again; want others", after)
	}
	tb.route(t)
	tb.waitHealthy(t, "the new Node to be ready")
	tb.startPodOn(t, n, "recreated")
	tb.mustKubectl(t, "--namespace", podNamespace, "delete", "pods", "--selector=app=stable") // they spread again
	tb.waitPods(t, "the pods to be ready again")
	// That has every lease, pool entry and pod address of the node in the new podCIDRs.
	tb.waitRecords(t, "with other podCIDRs")
	tb.checkConnectivity(t)
	var report auditReport
	if code := tb.bridgeCommand(t, &report, "audit"); code != 0 {
		t.Errorf("audit ended with %d: %+v; want no finding", code, report)
	}
	tb.record(t, "podCIDRs of a node before and after its Node was created again", fmt.Sprintf("%v, %v", before, after))
}
