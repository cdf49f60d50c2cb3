package e2e

import (
	"strings"
	"testing"
)

// Leases of the daemon's own containers are neither those of others, by which doctor recognizes the
// directory of the pods, nor a leak.
func TestDoctorContainers(t *testing.T) {
	t.Parallel()
	n := containerNode(t)
	s := n.Start(t)
	s.AllocateFor(t, "router")
	addContainer(t, s, container{"0a1b", "eth0"})
	addContainer(t, s, container{"5f1e", "eth0"})
	d := doctorWithoutOptions(t, n)
	d.wantProblems(t, nil)
	for _, f := range d.found {
		if strings.Contains(f.Message, "leases of others") {
			t.Errorf("found %+v; all leases are the daemon's", f)
		}
	}
}
