package agent

import (
	"context"
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// leases returns the addresses that the plugin has allocated.
func (tb *testbed) leases(ctx context.Context) (map[netip.Addr]bool, error) {
	if tb.calico {
		return tb.calicoLeases(ctx)
	}
	return tb.hostLocalLeases()
}

func (tb *testbed) nodeState(ctx context.Context) (ciliumagent.NodeState, error) {
	node, err := tb.kube.ciliumNode(ctx, nodeName)
	if err != nil {
		return ciliumagent.NodeState{}, err
	}
	b, err := ciliumagent.ReadNode(node)
	if err != nil {
		return ciliumagent.NodeState{}, err
	}
	b.Store, err = tb.leases(ctx)
	return b, err
}

// hostLocalLeases returns the addresses in host-local's lease files.
func (tb *testbed) hostLocalLeases() (map[netip.Addr]bool, error) {
	// A killed host-local may leave an empty lease file until its owner allocates again.
	leases, _, err := oracle.HostLocalAfterKill(tb.path("host-local"))
	held := map[netip.Addr]bool{}
	for _, lease := range leases {
		held[lease.IP] = true
	}
	return held, err
}
