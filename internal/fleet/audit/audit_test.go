package audit

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// newNode returns a CiliumNode. Each text is "KEY" for an entry of the bridge with the slot of its
// index, "KEY RESOURCE" for another, "KEY RESOURCE OWNER" for one with an owner; used has "KEY" or "KEY
// OWNER".
func newNode(name string, pool, used []string) *ciliumnode.Node {
	n := &ciliumnode.Node{}
	n.Metadata.Name = name
	n.Spec.IPAM.Pool, n.Status.IPAM.Used = map[string]planner.Entry{}, map[string]planner.Entry{}
	for i, text := range pool {
		words := append(strings.Fields(text), "", "")
		entry := planner.Entry{Resource: words[1], Owner: words[2]}
		if entry.Resource == "" {
			entry = planner.EntryOf(i, false)
		}
		n.Spec.IPAM.Pool[words[0]] = entry
	}
	for _, text := range used {
		words := append(strings.Fields(text), "")
		n.Status.IPAM.Used[words[0]] = planner.Entry{Owner: words[1]}
	}
	return n
}

// addAll adds the CiliumNodes with their Nodes, except those that are deleted, and ready bridge pods of
// these Nodes.
func addAll(c *Cluster, nodes []*ciliumnode.Node, deleted ...string) {
	c.Nodes, c.BridgePods = map[string][]string{}, nil
	addCiliumNode := c.CiliumNodes()
	for _, n := range nodes {
		name := n.Metadata.Name
		addCiliumNode(n)
		if !slices.Contains(deleted, name) {
			c.Nodes[name] = nil
			c.BridgePods = append(c.BridgePods, Pod{Name: "kube-system/bridge-" + name, Node: name, Ready: true})
		}
	}
}

// findings returns the findings as "CHECK NODE ADDRESS: MESSAGE", in a line each.
func findings(t *testing.T, c *Cluster) string {
	t.Helper()
	var all []string
	for _, f := range c.Report().Findings {
		all = append(all, fmt.Sprintf("%s %s %s: %s", f.Check, f.Node, f.Address, f.Message))
		if f.Remedy == "" {
			t.Errorf("%s has no remedy", f.Check)
		}
	}
	return strings.Join(all, "\n")
}

func TestFindings(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes   []*ciliumnode.Node
		deleted []string
		want    []string // "CHECK NODE ADDRESS: MESSAGE"
	}{
		"nothing": {[]*ciliumnode.Node{newNode("a", []string{"10.0.0.1", "fd00::1"}, []string{"10.0.0.1 default/x"}), newNode("b", []string{"10.0.0.2"}, nil)}, nil, nil},
		"two pools": {
			[]*ciliumnode.Node{newNode("b", []string{"10.0.0.9", "10.0.0.1"}, nil), newNode("a", []string{"10.0.0.1"}, []string{"10.0.0.1 default/x"})},
			nil,
			[]string{"address-in-two-pools  10.0.0.1: in 2 pools: a (ciliumnode-0, used by default/x), b (ciliumnode-1, not used)"},
		},
		"two pools, of another component": {
			[]*ciliumnode.Node{newNode("a", []string{"10.0.0.1"}, nil), newNode("b", []string{"10.0.0.1 eni-1 me"}, []string{"10.0.0.1"})},
			nil,
			[]string{"address-in-two-pools  10.0.0.1: in 2 pools: a (ciliumnode-0, not used), b (not an entry of the bridge, resource eni-1, owner me, used)"},
		},
		"two pools, spelled differently": {
			[]*ciliumnode.Node{newNode("a", []string{"fd00::1"}, nil), newNode("b", []string{"FD00:0::1"}, nil), newNode("c", []string{"::ffff:10.0.0.1"}, nil), newNode("d", []string{"10.0.0.1"}, nil)},
			nil,
			[]string{
				"address-in-two-pools  10.0.0.1: in 2 pools: c (ciliumnode-0, not used), d (ciliumnode-0, not used)",
				"address-in-two-pools  fd00::1: in 2 pools: a (ciliumnode-0, not used), b (ciliumnode-0, not used)",
				`malformed-address b FD00:0::1: spec.ipam.pool has the key "FD00:0::1", which is not an address as the agent spells it`,
				`malformed-address c ::ffff:10.0.0.1: spec.ipam.pool has the key "::ffff:10.0.0.1", which is not an address as the agent spells it`,
			},
		},
		"two spellings in one pool": {
			[]*ciliumnode.Node{newNode("a", []string{"10.0.0.1", "::ffff:10.0.0.1 x"}, nil)},
			nil,
			[]string{`malformed-address a ::ffff:10.0.0.1: spec.ipam.pool has the key "::ffff:10.0.0.1", which is not an address as the agent spells it`},
		},
		"not an address": {
			[]*ciliumnode.Node{newNode("a", []string{"10.0.0.1", "x", "10.0.0.0/24", "fe80::1%eth0"}, nil)},
			nil,
			[]string{
				`malformed-address a 10.0.0.0/24: spec.ipam.pool has the key "10.0.0.0/24", which is not an address as the agent spells it`,
				`malformed-address a fe80::1%eth0: spec.ipam.pool has the key "fe80::1%eth0", which is not an address as the agent spells it`,
				`malformed-address a x: spec.ipam.pool has the key "x", which is not an address as the agent spells it`,
			},
		},
		"used, not held": {
			[]*ciliumnode.Node{newNode("a", []string{"10.0.0.1"}, []string{"10.0.0.2 default/x"}), newNode("b", []string{"10.0.0.2"}, []string{"10.0.0.3"})},
			nil,
			[]string{
				"address-not-in-pool a 10.0.0.2: used by default/x, and not in the pool of this node; also b (ciliumnode-0, not used)",
				"address-not-in-pool b 10.0.0.3: used, and not in the pool of this node",
			},
		},
		"used, malformed": {
			[]*ciliumnode.Node{newNode("a", []string{"10.0.0.1"}, []string{"FD00::1 default/x", "x"})},
			nil,
			[]string{
				"address-not-in-pool a fd00::1: used by default/x, and not in the pool of this node",
				`malformed-address a FD00::1: status.ipam.used has the key "FD00::1", which is not an address as the agent spells it`,
				`malformed-address a x: status.ipam.used has the key "x", which is not an address as the agent spells it`,
			},
		},
		"used beside the pool of another mode": {
			[]*ciliumnode.Node{otherMode(newNode("a", []string{"10.0.0.1"}, []string{"10.0.0.2"}))},
			nil,
			[]string{"address-not-in-pool a 10.0.0.2: used, and not in the pool of this node"},
		},
		"used in another mode": {[]*ciliumnode.Node{otherMode(newNode("a", nil, []string{"10.0.0.2"}))}, nil, nil},
		"deleted nodes": {
			[]*ciliumnode.Node{newNode("a", []string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.1"}), newNode("b", nil, nil), newNode("c", []string{"10.0.0.1"}, nil)},
			[]string{"a", "b"},
			[]string{
				"address-in-two-pools  10.0.0.1: in 2 pools: a (ciliumnode-0, the Node does not exist, used), c (ciliumnode-0, not used)",
				"node-deleted a : the Node does not exist; its CiliumNode has 2 addresses in its pool, and 1 are used",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCluster()
			for range 2 { // objects from before the second begin do not count
				addAll(c, tt.nodes, tt.deleted...)
			}
			if got, want := findings(t, c), strings.Join(tt.want, "\n"); got != want {
				t.Errorf("found\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestOutsidePodCIDRs(t *testing.T) {
	for name, tt := range map[string]struct {
		a, b        []string // the pools of the nodes a and b
		cidrsOfA    []string
		deleted     []string
		sharedRange bool
		want        []string
	}{
		"inside":                        {a: []string{"10.0.1.1", "fd00:1::1"}, b: []string{"10.0.2.1"}, cidrsOfA: []string{"10.0.1.0/24", "fd00:1::/64"}},
		"created again":                 {a: []string{"10.0.2.1", "10.0.2.2"}, b: nil, cidrsOfA: []string{"10.0.1.0/24"}, want: []string{"a 10.0.2.1 b", "a 10.0.2.2 b"}},
		"both nodes have it":            {a: []string{"10.0.2.1"}, b: []string{"10.0.2.1"}, cidrsOfA: []string{"10.0.1.0/24"}, want: []string{"a 10.0.2.1 b"}},
		"in none, beside its own":       {a: []string{"10.0.3.1", "10.0.1.1"}, cidrsOfA: []string{"10.0.1.0/24"}, want: []string{"a 10.0.3.1 none"}},
		"in none, another in its own":   {a: []string{"10.0.3.1", "10.0.3.2"}, b: []string{"10.0.2.1"}, cidrsOfA: []string{"10.0.1.0/24"}, want: []string{"a 10.0.3.1 none", "a 10.0.3.2 none"}},
		"the same with --shared-range":  {a: []string{"10.0.3.1"}, b: []string{"10.0.2.1"}, cidrsOfA: []string{"10.0.1.0/24"}, sharedRange: true},
		"another range":                 {a: []string{"10.0.3.1"}, b: []string{"10.0.3.2"}, cidrsOfA: []string{"10.0.1.0/24"}},
		"of another component":          {a: []string{"10.0.2.1 eni-1"}, cidrsOfA: []string{"10.0.1.0/24"}},
		"written by another client":     {a: []string{"10.0.1.1", "10.0.2.1 x", "10.0.3.1 x"}, cidrsOfA: []string{"10.0.1.0/24"}, want: []string{"a 10.0.2.1 b"}},
		"a range of the whole cluster":  {a: []string{"10.0.2.1"}, cidrsOfA: []string{"10.0.1.0/24"}, sharedRange: true},
		"no podCIDRs, of another node":  {a: []string{"10.0.2.1"}, want: []string{"a 10.0.2.1 b"}},
		"deleted Node":                  {a: []string{"10.0.2.1"}, deleted: []string{"a"}},
		"not a CIDR":                    {a: []string{"10.0.3.1"}, cidrsOfA: []string{"x"}},
		"IPv6 of another node":          {a: []string{"10.0.1.1", "fd00:2::1"}, cidrsOfA: []string{"10.0.1.0/24", "fd00:1::/64"}, want: []string{"a fd00:2::1 b"}},
		"podCIDRs with different sizes": {a: []string{"10.0.1.200", "10.0.2.9"}, cidrsOfA: []string{"10.0.1.0/25"}, want: []string{"a 10.0.2.9 b"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCluster()
			c.SharedRange = tt.sharedRange
			addCiliumNode := c.CiliumNodes()
			for node, pool := range map[string][]string{"a": tt.a, "b": tt.b} {
				addCiliumNode(newNode(node, pool, nil))
			}
			c.Nodes = map[string][]string{"a": tt.cidrsOfA, "b": {"10.0.2.0/24", "fd00:2::/64"}}
			for _, name := range tt.deleted {
				delete(c.Nodes, name)
			}
			var got []string
			for _, f := range c.Report().Findings {
				if f.Check == OutsidePodCIDRs {
					_, of, _ := strings.Cut(f.Message, "in those of ")
					of, _, _ = strings.Cut(of, ":")
					if of != cmp.Or(f.OtherNode, "none") {
						t.Errorf("the other node is %q, and %q in the message", f.OtherNode, of)
					}
					got = append(got, f.Node+" "+f.Address+" "+of)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %q; want %q", got, tt.want)
			}
		})
	}
}

func TestOfAnotherNode(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	ip := netip.MustParseAddr("10.0.0.1")
	ofPod := PodAddress{Pod: "x/p", Node: "b", IP: ip, Since: now.Add(-time.Hour), Ready: true}
	address := func(kind, ip string) *ciliumnode.Node {
		n := newNode("b", nil, nil)
		n.Spec.Addresses = []ciliumnode.Address{{Type: kind, IP: ip}, {Type: kind, IP: ip}, {Type: "Hostname", IP: "b"}}
		return n
	}
	const (
		inPool    = "address-of-another-node a 10.0.0.1: in the pool of this node, but "
		hasPod    = inPool + "pod x/p on b has it: a (ciliumnode-0, not used)"
		isOfNode  = inPool + "it is an address of node b: a (not an entry of the bridge, resource eni-1, not used)"
		ciliumNet = "CiliumInternalIP"
	)
	for name, tt := range map[string]struct {
		pool    string
		mode    func(*ciliumnode.Node) *ciliumnode.Node
		b       *ciliumnode.Node
		pod     func(*PodAddress)
		deleted []string
		want    string
	}{
		"pod":                       {pool: "10.0.0.1", pod: func(*PodAddress) {}, want: hasPod},
		"pod of the same node":      {pool: "10.0.0.1", pod: func(p *PodAddress) { p.Node = "a" }, want: "agent-not-responding a : 1 addresses of pods are in the pool and not reported as used: x/p (10.0.0.1)"},
		"pod, started now":          {pool: "10.0.0.1", pod: func(p *PodAddress) { p.Since = now }},
		"pod that is not ready":     {pool: "10.0.0.1", pod: func(p *PodAddress) { p.Ready = false }},
		"pod of a node without it":  {pool: "10.0.0.1", pod: func(p *PodAddress) { p.Node = "virtual" }},
		"pod of a deleted Node":     {pool: "10.0.0.1", pod: func(*PodAddress) {}, deleted: []string{"b"}},
		"pod, in both pools":        {pool: "10.0.0.1", b: newNode("b", []string{"10.0.0.1"}, []string{"10.0.0.1"}), pod: func(*PodAddress) {}, want: "address-in-two-pools  10.0.0.1: in 2 pools: a (ciliumnode-0, not used), b (ciliumnode-0, used)"},
		"node":                      {pool: "10.0.0.1 eni-1", b: address("InternalIP", "10.0.0.1"), want: isOfNode},
		"node, spelled differently": {pool: "10.0.0.1 eni-1", b: address("ExternalIP", "::ffff:10.0.0.1"), want: isOfNode},
		"node, of a cloud's pool":   {pool: "10.0.0.1 eni-1", mode: otherMode, b: address("InternalIP", "10.0.0.1")},
		"another address":           {pool: "10.0.0.1", b: address("InternalIP", "10.0.0.2")},
		"router of mode delegated":  {pool: "10.0.0.1", b: address(ciliumNet, "10.0.0.1")},
		"a deleted node's":          {pool: "10.0.0.1", b: address("InternalIP", "10.0.0.1"), deleted: []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCluster()
			a := newNode("a", []string{tt.pool}, nil)
			if tt.mode != nil {
				a = tt.mode(a)
			}
			addAll(c, []*ciliumnode.Node{a, cmp.Or(tt.b, newNode("b", nil, nil))}, tt.deleted...)
			c.Now, c.SharedRange, c.Nodes["virtual"] = now, true, nil
			if tt.pod != nil {
				c.PodAddresses = []PodAddress{ofPod}
				tt.pod(&c.PodAddresses[0])
			}
			if got := findings(t, c); got != tt.want {
				t.Errorf("found\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func otherMode(n *ciliumnode.Node) *ciliumnode.Node {
	n.Spec.IPAM.PodCIDRs = []string{"10.1.0.0/24"}
	return n
}

func TestNoBridge(t *testing.T) {
	ours := newNode("a", []string{"10.0.0.1", "10.0.0.2"}, nil)
	for name, tt := range map[string]struct {
		node *ciliumnode.Node
		pods []Pod
		want string
	}{
		"ready":                 {ours, []Pod{{"x/1", "a", false, time.Time{}}, {"x/2", "a", true, time.Time{}}}, ""},
		"not ready":             {ours, []Pod{{"x/2", "a", false, time.Time{}}, {"x/1", "a", false, time.Time{}}}, "2 addresses of the bridge are in the pool, and bridge pod x/1 is not ready"},
		"no pod in the cluster": {ours, nil, "2 addresses of the bridge are in the pool, and no bridge pod is on the node"},
		"a pod of another node": {ours, []Pod{{"x/1", "b", true, time.Time{}}}, "2 addresses of the bridge are in the pool, and no bridge pod is on the node"},
		"two spellings of an address": {
			newNode("a", []string{"10.0.0.1", "::ffff:10.0.0.1"}, nil), nil,
			"1 addresses of the bridge are in the pool, and no bridge pod is on the node\n" +
				`malformed-address a ::ffff:10.0.0.1: spec.ipam.pool has the key "::ffff:10.0.0.1", which is not an address as the agent spells it`,
		},
		"empty pool":                          {newNode("a", nil, nil), []Pod{{"x/1", "b", true, time.Time{}}}, "the pool is empty, and no bridge pod is on the node"},
		"empty pool, of a cluster without it": {newNode("a", nil, nil), nil, ""},
		"empty pool, of another mode":         {otherMode(newNode("a", nil, nil)), []Pod{{"x/1", "b", true, time.Time{}}}, ""},
		"pool of another component":           {newNode("a", []string{"10.0.0.1 eni-1"}, nil), []Pod{{"x/1", "b", true, time.Time{}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCluster()
			c.CiliumNodes()(tt.node)
			c.Nodes, c.BridgePods = map[string][]string{"a": nil}, tt.pods
			if tt.want != "" {
				tt.want = "no-bridge a : " + tt.want
			}
			if got := findings(t, c); got != tt.want {
				t.Errorf("found %q; want %q", got, tt.want)
			}
		})
	}
}

func TestNoCiliumNode(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		node string // of the pod
		ago  time.Duration
		want string
	}{
		"waits":                {"b", 15 * time.Minute, "no-cilium-node b : the Node has no CiliumNode, for which bridge pod x/b waits"},
		"has joined":           {"b", 14 * time.Minute, ""},
		"has one":              {"a", time.Hour, ""},
		"the Node was deleted": {"c", time.Hour, ""},
	} {
		c := NewCluster()
		c.Now = now
		c.CiliumNodes()(newNode("a", []string{"10.0.0.1 eni-1"}, nil))
		c.Nodes = map[string][]string{"a": nil, "b": nil}
		c.BridgePods = []Pod{{Name: "x/" + tt.node, Node: tt.node, Since: now.Add(-tt.ago)}, {Name: "x/pending", Node: tt.node}}
		if got := findings(t, c); got != tt.want {
			t.Errorf("%s: found %q; want %q", name, got, tt.want)
		}
	}
}

func TestCounts(t *testing.T) {
	c := NewCluster()
	addAll(c, []*ciliumnode.Node{newNode("a", []string{"10.0.0.1", "10.0.0.2", "x"}, []string{"10.0.0.1"}), newNode("b", nil, nil)}, "b")
	want := Report{CiliumNodes: 2, Nodes: 1, BridgePods: 1, PoolAddresses: 2, UsedAddresses: 1}
	got := c.Report()
	got.Findings = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
	if got := NewCluster().Report().Findings; got == nil {
		t.Error("without findings the list is nil, which JSON has as null")
	}
}

// A message does not name all nodes of a common range.
func TestManyHolders(t *testing.T) {
	c := NewCluster()
	var nodes []*ciliumnode.Node
	for i := range 20 {
		nodes = append(nodes, newNode(fmt.Sprintf("n%02d", i), []string{"10.0.0.1"}, nil))
	}
	addAll(c, nodes)
	f := c.Report().Findings
	if len(f) != 1 || len(f[0].Holders) != 20 || !strings.HasSuffix(f[0].Message, "n07 (ciliumnode-0, not used), and 12 more") {
		t.Errorf("found %+v; want one finding with 20 holders, 8 of them in the message", f)
	}
}
