package kubernetes

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// install applies the manifests on nodes that have never had them, and waits until all is ready.
func (tb *testbed) install(t *testing.T) {
	t.Helper()
	tb.record(t, "from the manifests to ready nodes, DaemonSets and agents", tb.apply(t, tb.manifests(t)))
}

// testFresh checks the new cluster.
func (tb *testbed) testFresh(t *testing.T) {
	tb.waitRecords(t, "of the agents")
	var ranges []netip.Prefix
	for _, n := range tb.nodes {
		cidrs := tb.mustPodCIDRs(t, n)
		for _, cidr := range cidrs {
			harness.Must(t, n.checkRendered(`"`+cidr.String()+`"`))
			for _, other := range ranges {
				if cidr.Overlaps(other) {
					t.Errorf("%s of %s overlaps with %s of another node", cidr, n.name, other)
				}
			}
		}
		ranges = append(ranges, cidrs...)
		leases, err := n.leases()
		harness.Must(t, err)
		tb.record(t, n.name+": podCIDRs; addresses leased by host-local, all of these", fmt.Sprintf("%v; %d", cidrs, len(leases)))
	}
	events, err := tb.warnings(t)
	harness.Must(t, err)
	for _, e := range events {
		t.Errorf("a fresh cluster has a Warning of %s about %s: %s: %s", e.Source.Component, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	tb.record(t, "Warning Events of our programs", len(events))
}

// warnings returns the Warning Events that our programs have created.
func (tb *testbed) warnings(t *testing.T) ([]corev1.Event, error) {
	t.Helper()
	all, err := listOf[corev1.Event](t.Context(), tb.Resource("", "v1", "events"), metav1.ListOptions{FieldSelector: "type=Warning"})
	var ours []corev1.Event
	for _, e := range all {
		if strings.HasPrefix(e.Source.Component+e.ReportingController, "delegated-ipam") {
			ours = append(ours, e)
		}
	}
	return ours, err
}
