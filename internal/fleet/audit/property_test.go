package audit

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// The findings are the same in any order of reading, and the holders of an address are those of the
// answer.
func TestModel(t *testing.T) {
	spellings := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "::ffff:10.0.0.1", "FD00::1", "fd00:0::2", "10.0.0.3%x", "no address"}
	var ips []netip.Addr
	for _, text := range spellings[:5] {
		ips = append(ips, netip.MustParseAddr(text))
	}
	keys := rapid.SliceOfDistinct(rapid.SampledFrom(spellings), rapid.ID)
	names := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"n0", "n1", "n2", "n3", "n4"}), rapid.ID)
	entries := rapid.SampledFrom([]planner.Entry{planner.EntryOf(3, false), planner.EntryOf(4, true), {Resource: "eni-1"}, {Owner: "me"}, {}})
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*ciliumnode.Node
		var pods []Pod
		for _, name := range names.Draw(t, "nodes") {
			n := newNode(name, nil, nil)
			for _, key := range keys.Draw(t, "pool") {
				n.Spec.IPAM.Pool[key] = entries.Draw(t, "entry")
			}
			for _, key := range keys.Draw(t, "used") {
				n.Status.IPAM.Used[key] = planner.Entry{Owner: rapid.SampledFrom([]string{"", "default/a"}).Draw(t, "owner")}
			}
			if rapid.Bool().Draw(t, "other mode") {
				otherMode(n)
			}
			nodes = append(nodes, n)
		}
		for _, name := range names.Draw(t, "nodes with a pod") {
			pods = append(pods, Pod{Name: "x/" + name, Node: name, Ready: rapid.Bool().Draw(t, "ready")})
		}
		deleted := names.Draw(t, "deleted")
		c, reordered := NewCluster(), NewCluster(ips...)
		addAll(c, nodes, deleted...)
		addAll(reordered, rapid.Permutation(nodes).Draw(t, "order"), deleted...)
		c.BridgePods, reordered.BridgePods = pods, pods
		report := c.Report()
		if got := reordered.Report(); !reflect.DeepEqual(got, report) {
			t.Fatalf("found %+v; want %+v", got, report)
		}
		answers := map[string]Answer{}
		for _, a := range reordered.Answers() {
			answers[a.Address.String()] = a
		}
		for _, f := range report.Findings {
			if a := answers[f.Address]; (f.Check == TwoPools || f.Check == NotHeld) && (!slices.Equal(a.Holders, f.Holders) || a.State != Conflict) {
				t.Fatalf("the holders of %s are %v in the finding, and %v (%s) in the answer", f.Address, f.Holders, a.Holders, a.State)
			}
		}
	})
}
