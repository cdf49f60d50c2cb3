package main

import (
	"net"

	"github.com/cilium/cilium/pkg/cidr"
	"github.com/cilium/cilium/pkg/endpoint"
	"github.com/cilium/cilium/pkg/endpointmanager"
	"github.com/cilium/cilium/pkg/ipam"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/node/addressing"
	"github.com/cilium/cilium/pkg/node/types"
)

const (
	podCIDR = "10.15.0.0/16"
	router  = "10.15.0.1"
)

// localNode is the node that responses describe.
func localNode() *node.LocalNodeStore {
	return node.NewTestLocalNodeStore(node.LocalNode{Node: types.Node{
		Name:          "bench",
		IPv4AllocCIDR: cidr.MustParseCIDR(podCIDR),
		IPAddresses:   []types.Address{{Type: addressing.NodeCiliumInternalIP, IP: net.ParseIP(router)}},
	}})
}

// nodeAddresses is the node as the allocator sees it.
type nodeAddresses struct{}

func (nodeAddresses) IPv4() node.AddressingFamily { return family{} }
func (nodeAddresses) IPv6() node.AddressingFamily { return family{} } // asked for the log

type family struct{}

func (family) Router() net.IP             { return net.ParseIP(router) }
func (family) PrimaryExternal() net.IP    { return net.ParseIP(router) }
func (family) AllocationCIDR() *cidr.CIDR { return cidr.MustParseCIDR(podCIDR) }

// onePool puts every owner into the default pool.
type onePool struct{}

func (onePool) GetIPPoolForPod(string, ipam.Family) (string, error) { return "default", nil }

// noEndpoints knows no endpoint, so that every address may be released.
type noEndpoints struct {
	endpointmanager.EndpointManager
}

func (noEndpoints) LookupIPv4(string) *endpoint.Endpoint { return nil }
func (noEndpoints) LookupIPv6(string) *endpoint.Endpoint { return nil }
