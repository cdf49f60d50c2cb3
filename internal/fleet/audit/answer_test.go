package audit

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

func TestAnswers(t *testing.T) {
	addr := netip.MustParseAddr
	released := newNode("a", []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, []string{"10.0.0.1 default/x", "10.0.0.9 default/y"})
	released.Spec.IPAM.Pool["10.0.0.2"] = planner.EntryOf(7, true)
	released.Status.IPAM.ReleaseIPs = map[string]planner.Handshake{"10.0.0.2": planner.MarkedForRelease, "0.0.0.0": planner.DoNotRelease, "10.0.0.8": planner.Released}
	nodes := []*ciliumnode.Node{newNode("c", []string{"10.0.0.3"}, nil), released, newNode("b", []string{"FD00::1 eni-1 me"}, nil)}
	asked := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.8", "10.0.0.9", "fd00:0::1", "::ffff:10.0.0.1", "0.0.0.0", "172.16.0.1"}
	var ips []netip.Addr
	for _, text := range asked {
		ips = append(ips, addr(text))
	}
	l := NewCluster(ips...)
	for range 2 { // objects from before the second begin do not count
		addCiliumNode := l.CiliumNodes()
		for _, n := range nodes {
			addCiliumNode(n)
		}
	}
	l.Nodes = map[string][]string{"a": {"10.0.0.8/29"}, "b": {"10.0.0.0/29", "x", "fd00::/64"}}
	none := []Holder{}
	want := []Answer{
		{addr("10.0.0.1"), Held, []Holder{{Node: "a", InPool: true, Slot: "ciliumnode-0", Used: true, UsedBy: "default/x"}}, []Range{{"b", "10.0.0.0/29"}}},
		{addr("10.0.0.2"), Held, []Holder{{Node: "a", InPool: true, Slot: "ciliumnode-7", Suspended: true, Handshake: "marked-for-release"}}, []Range{{"b", "10.0.0.0/29"}}},
		{addr("10.0.0.3"), Conflict, []Holder{{Node: "a", InPool: true, Slot: "ciliumnode-2"}, {Node: "c", NodeDeleted: true, InPool: true, Slot: "ciliumnode-0"}}, []Range{{"b", "10.0.0.0/29"}}},
		{addr("10.0.0.8"), Free, none, []Range{{"a", "10.0.0.8/29"}}},
		{addr("10.0.0.9"), Conflict, []Holder{{Node: "a", Used: true, UsedBy: "default/y"}}, []Range{{"a", "10.0.0.8/29"}}},
		{addr("fd00::1"), Held, []Holder{{Node: "b", InPool: true, Resource: "eni-1", Owner: "me"}}, []Range{{"b", "fd00::/64"}}},
		{addr("0.0.0.0"), Free, none, []Range{}},
		{addr("172.16.0.1"), Free, none, []Range{}},
	}
	if got := l.Answers(); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
