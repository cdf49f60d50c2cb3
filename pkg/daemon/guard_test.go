package daemon

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestAGuardKeepsASecondSidecarOfTheSameNodeAndNetworkAway(t *testing.T) {
	node := fmt.Sprintf("guard-%d", os.Getpid())
	first, second := newGuards(node, "/state/one"), newGuards(node, "/state/two")
	t.Cleanup(first.release)
	t.Cleanup(second.release)
	for range 2 { // taking it again is no conflict with oneself
		if err := first.take("net"); err != nil {
			t.Fatal(err)
		}
	}
	err := second.take("net")
	if err == nil {
		t.Fatal("the second sidecar was let in")
	}
	for _, want := range []string{"net", node, fmt.Sprint(os.Getpid()), "/state/one", "--node-name"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}
	if err := second.take("other"); err != nil {
		t.Errorf("another network of the node: %v", err)
	}
	elsewhere := newGuards(node+"-2", "")
	t.Cleanup(elsewhere.release)
	if err := elsewhere.take("net"); err != nil {
		t.Errorf("the network on another node: %v", err)
	}
	first.release()
	if err := second.take("net"); err != nil {
		t.Errorf("after the first one has gone: %v", err)
	}
}

func TestGuardNamesOfDifferentNodesAndNetworksDiffer(t *testing.T) {
	if guardName("ab", "c") == guardName("a", "bc") {
		t.Error("node ab, network c and node a, network bc share a guard")
	}
}
