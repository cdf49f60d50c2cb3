package whereabouts

import (
	"encoding/json"
	"fmt"
	"testing"
)

// testTry runs "profile try" while a sidecar runs: it proposes the profile as it is, and nothing else
// than the sidecar's reservation is left.
func testTry(t *testing.T, tb *testbed) {
	ns := tb.newNamespace(t)
	n := ns.newNode(t, ipv4Range)
	s := n.Start(t)
	s.AllocateFor(t, "router")
	before := ns.mustReservations(t)
	out := n.Command(t, "profile", "try", "whereabouts", "--output=json", "--cni-conf-dir="+n.ConfDir, "--cni-bin-dir="+n.BinDir)
	var report struct {
		Differences []struct {
			Field, Reason string
			Proposal      any
		}
		Proposal  map[string]any
		Leftovers []any
	}
	if err := json.Unmarshal([]byte(out.Stdout), &report); err != nil {
		t.Fatalf("exit code %d, %q, %q: %v", out.ExitCode, out.Stdout, out.Stderr, err)
	}
	var differences []string
	for _, d := range report.Differences {
		differences = append(differences, fmt.Sprintf("%s: %v, %s", d.Field, d.Proposal, d.Reason))
	}
	if len(differences)+len(report.Leftovers) > 0 || out.ExitCode != 0 || report.Proposal["type"] != "whereabouts" {
		t.Errorf("exit code %d, differences %q, leftovers %v, proposal %v; want 0, none, none and the profile; %s",
			out.ExitCode, differences, report.Leftovers, report.Proposal, out.Stderr)
	}
	ns.wantUnchanged(t, before)
}
