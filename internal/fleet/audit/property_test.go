package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// spellings are keys for a few addresses, most of them as the agent spells them.
var spellings = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "::ffff:10.0.0.1", "FD00::1", "fd00:0::2", "10.0.0.3%x", "no address"}

// world is a generated cluster.
type world struct {
	nodes   []*ciliumnode.Node
	deleted []string
	pods    []Pod
}

func drawWorld(t *rapid.T) world {
	var w world
	for i := range rapid.IntRange(0, 5).Draw(t, "nodes") {
		name := fmt.Sprintf("n%d", i)
		n := newNode(name, nil, nil)
		for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(spellings), rapid.ID).Draw(t, name+" pool") {
			n.Spec.IPAM.Pool[key] = rapid.SampledFrom([]planner.Entry{
				planner.EntryOf(3, false), planner.EntryOf(4, true), {Resource: "eni-1"}, {Owner: "me"}, {},
			}).Draw(t, "entry")
		}
		for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(spellings), rapid.ID).Draw(t, name+" used") {
			n.Status.IPAM.Used[key] = planner.Entry{Owner: rapid.SampledFrom([]string{"", "default/a"}).Draw(t, "owner")}
		}
		if rapid.Bool().Draw(t, name+" of another mode") {
			otherMode(n)
		}
		if rapid.Bool().Draw(t, name+" is deleted") {
			w.deleted = append(w.deleted, name)
		}
		if rapid.Bool().Draw(t, name+" has a pod") {
			w.pods = append(w.pods, Pod{Name: "x/" + name, Node: name, Ready: rapid.Bool().Draw(t, "ready")})
		}
		w.nodes = append(w.nodes, n)
	}
	return w
}

// has reports whether a map has an address, by any spelling.
func has(m map[string]planner.Entry, ip netip.Addr) bool {
	for key := range m {
		if got, err := netip.ParseAddr(key); err == nil && got.WithZone("").Unmap() == ip {
			return true
		}
	}
	return false
}

// expected returns the findings of the world, each as text, by comparing every address with every node.
func (w world) expected() []string {
	var out []string
	for _, text := range spellings[:5] {
		ip := netip.MustParseAddr(text)
		pools := 0
		for _, n := range w.nodes {
			if has(n.Spec.IPAM.Pool, ip) {
				pools++
			}
		}
		if pools > 1 {
			out = append(out, fmt.Sprintf("%s  %s", TwoPools, ip))
		}
	}
	for _, n := range w.nodes {
		name, pool, used := n.Metadata.Name, n.Spec.IPAM.Pool, n.Status.IPAM.Used
		addresses, ours := 0, 0
		for _, text := range spellings[:5] {
			if has(pool, netip.MustParseAddr(text)) {
				addresses++
			}
		}
		for key, e := range pool {
			ip, wellFormed := ciliumnode.ParseAddress(key)
			_, hidden := pool[ip.String()] // by the spelling of the agent
			if _, is := e.Slot(); is && ip.IsValid() && (wellFormed || !hidden) {
				ours++
			}
		}
		mode := n.OtherMode() == ""
		if !mode && addresses == 0 {
			used = nil
		}
		for _, text := range spellings[:5] {
			if ip := netip.MustParseAddr(text); has(used, ip) && !has(pool, ip) {
				out = append(out, fmt.Sprintf("%s %s %s", NotHeld, name, ip))
			}
		}
		for _, key := range spellings[5:] {
			for _, m := range []map[string]planner.Entry{pool, used} {
				if _, exists := m[key]; exists {
					out = append(out, fmt.Sprintf("%s %s %s", Malformed, name, key))
				}
			}
		}
		ready := slices.ContainsFunc(w.pods, func(p Pod) bool { return p.Node == name && p.Ready })
		switch {
		case slices.Contains(w.deleted, name):
			if addresses > 0 {
				out = append(out, fmt.Sprintf("%s %s ", NodeDeleted, name))
			}
		case !ready && (ours > 0 || addresses == 0 && mode && len(w.pods) > 0):
			out = append(out, fmt.Sprintf("%s %s ", NoBridge, name))
		}
	}
	slices.Sort(out)
	return out
}

// The findings agree with a comparison of all pairs, in any order of reading, and the holder of each
// address is the same as in the findings.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		var ips []netip.Addr
		for _, text := range spellings[:5] {
			ips = append(ips, netip.MustParseAddr(text))
		}
		c, l := NewCluster(), NewCluster(ips...)
		addCiliumNode, lookCiliumNode := c.CiliumNodes(), l.CiliumNodes()
		c.Nodes = map[string][]string{}
		for _, n := range rapid.Permutation(w.nodes).Draw(t, "order") {
			addCiliumNode(n)
			lookCiliumNode(n)
			if name := n.Metadata.Name; !slices.Contains(w.deleted, name) {
				c.Nodes[name] = nil
			}
		}
		c.BridgePods, l.Nodes = w.pods, c.Nodes
		report := c.Report()
		var got []string
		for _, f := range report.Findings {
			got = append(got, fmt.Sprintf("%s %s %s", f.Check, f.Node, f.Address))
		}
		slices.Sort(got)
		if want := w.expected(); !slices.Equal(got, want) {
			t.Fatalf("found %q; want %q", got, want)
		}
		answers := map[string]Answer{}
		for _, a := range l.Answers() {
			answers[a.Address.String()] = a
		}
		for _, f := range report.Findings {
			if f.Check != TwoPools && f.Check != NotHeld {
				continue
			}
			if a := answers[f.Address]; !slices.Equal(a.Holders, f.Holders) || a.State != Conflict {
				t.Fatalf("the holders of %s are %v in the finding, and %v (%s) in the answer", f.Address, f.Holders, a.Holders, a.State)
			}
		}
	})
}
