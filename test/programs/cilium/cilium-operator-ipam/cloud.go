package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/cilium/operator/pkg/ipam/nodemanager"
	"github.com/cilium/cilium/operator/pkg/ipam/stats"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	v2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
)

// capacity is how many addresses a node may have.
const capacity = 1 << 12

// cloud imitates a cloud: an nodemanager.AllocationImplementation in which each node has a range.
type cloud struct {
	// delay is the time of a call.
	delay time.Duration

	mu    sync.Mutex
	nodes int
}

// CreateNode returns the operations of a new node.
func (c *cloud) CreateNode(*v2.CiliumNode, *nodemanager.Node) nodemanager.NodeOperations {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes++
	return &instance{delay: c.delay, next: netip.AddrFrom4([4]byte{10, byte(c.nodes), 0, 10}), addresses: ipamtypes.AllocationMap{}}
}

func (c *cloud) GetPoolQuota() ipamtypes.PoolQuotaMap      { return nil }
func (c *cloud) Resync(context.Context) (time.Time, error) { return time.Now(), nil }
func (c *cloud) HasInstance(string) bool                   { return true }
func (c *cloud) DeleteInstance(string)                     {}

func (c *cloud) InstanceSync(ctx context.Context, _ string) (time.Time, error) { return c.Resync(ctx) }

// instance is a node of the cloud.
type instance struct {
	delay time.Duration

	mu        sync.Mutex
	next      netip.Addr
	addresses ipamtypes.AllocationMap
	used      ipamtypes.AllocationMap
}

// UpdatedNode remembers the used addresses, which are not released.
func (i *instance) UpdatedNode(n *v2.CiliumNode) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.used = n.Status.IPAM.Used
}

func (i *instance) ResyncInterfacesAndIPs(context.Context, *slog.Logger) (ipamtypes.AllocationMap, stats.InterfaceStats, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.addresses), stats.InterfaceStats{NodeCapacity: capacity}, nil
}

func (i *instance) PrepareIPAllocation(*slog.Logger) (*nodemanager.AllocationAction, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return &nodemanager.AllocationAction{PoolID: "range", IPv4: nodemanager.IPAllocationAction{AvailableForAllocation: capacity - len(i.addresses)}}, nil
}

// AllocateIPs is one call of the cloud.
func (i *instance) AllocateIPs(_ context.Context, a *nodemanager.AllocationAction) error {
	time.Sleep(i.delay)
	i.mu.Lock()
	defer i.mu.Unlock()
	for range a.IPv4.AvailableForAllocation {
		i.addresses[i.next.String()] = ipamtypes.AllocationIP{Resource: "eni-0"}
		i.next = i.next.Next()
	}
	return nil
}

func (i *instance) PrepareIPRelease(excess int, _ *slog.Logger) *nodemanager.ReleaseAction {
	i.mu.Lock()
	defer i.mu.Unlock()
	free := slices.DeleteFunc(slices.Sorted(maps.Keys(i.addresses)), func(ip string) bool { _, used := i.used[ip]; return used })
	return &nodemanager.ReleaseAction{PoolID: "range", IPsToRelease: free[:min(excess, len(free))]}
}

// ReleaseIPs is one call of the cloud.
func (i *instance) ReleaseIPs(_ context.Context, a *nodemanager.ReleaseAction) error {
	time.Sleep(i.delay)
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, ip := range a.IPsToRelease {
		if _, held := i.addresses[ip]; !held {
			return fmt.Errorf("%s is not allocated", ip)
		}
		delete(i.addresses, ip)
	}
	return nil
}

func (i *instance) PopulateStatusFields(*v2.CiliumNode)                                 {}
func (i *instance) ReleaseIPPrefixes(context.Context, *nodemanager.ReleaseAction) error { return nil }

func (i *instance) GetMaximumAllocatableIPv4() int   { return capacity }
func (i *instance) GetMinimumAllocatableIPv4() int   { return 8 }
func (i *instance) GetAttachedCIDRs() []netip.Prefix { return nil }

func (i *instance) PrepareCIDRRelease([]netip.Prefix) []*nodemanager.ReleaseAction { return nil }

func (i *instance) IsPrefixDelegated() bool { return false }

func (i *instance) ReleaseCIDRs(context.Context, *nodemanager.ReleaseAction) ([]netip.Prefix, error) {
	return nil, nil
}

func (i *instance) AllocateStaticIP(context.Context, ipamtypes.Tags) (string, error) { return "", nil }

func (i *instance) CreateInterface(context.Context, *nodemanager.AllocationAction, *slog.Logger) (int, string, error) {
	return 0, "no interface", fmt.Errorf("the node has %d addresses, the most that it may have", capacity)
}
