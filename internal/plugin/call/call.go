// Package call has the types of CNI IPAM calls, which the engine makes and a plugin runner runs:
// network, invocation, call, result and errors. It is pure data: no processes, no files.
package call

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Network is one CNI network configuration whose plugin chain delegates IPAM.
type Network struct {
	Name string
	// CNIVersion is the highest version in the file that libcni supports; empty if the file names
	// none. Calls use the highest version that the daemon and the plugin both support instead
	// (docs/reference/plugins.md, CNI versions).
	CNIVersion string
	// File is the path of the configuration file.
	File string
	// Shared reports that the file is in a ConfigMap volume, so that every node of the cluster has
	// the same one.
	Shared bool
	// PluginConfig is the plugin object whose "ipam" delegates, unchanged.
	PluginConfig json.RawMessage
	// IPAMType is the type of the IPAM plugin, such as "host-local".
	IPAMType string
	// ServesContainers reports that container runtimes call this plugin through the daemon
	// (delegated-ipam-cni).
	ServesContainers bool
	// DisableCheck and DisableGC turn off CHECK and GC for this network (CNI spec section 1).
	DisableCheck, DisableGC bool
}

func (n Network) Equal(o Network) bool { return reflect.DeepEqual(n, o) }

// Invocation is everything that a DEL or CHECK needs to address the same attachment as its ADD
// (docs/design/how-it-works.md, Invocations). A record keeps each invocation until a DEL with it has
// succeeded, so that a changed conflist, a moved binary or an upgraded plugin cannot orphan an
// address.
type Invocation struct {
	// ContainerID, Path, IfName and NetNS are CNI_CONTAINERID, CNI_PATH, CNI_IFNAME and CNI_NETNS.
	ContainerID string `json:"containerID"`
	// Network is the name of the CNI network configuration.
	Network string `json:"network"`
	// CNIVersion is the negotiated CNI version of the calls.
	CNIVersion string `json:"cniVersion"`
	// DisableCheck is the network's disableCheck: CHECK must not be called (CNI spec section 1).
	DisableCheck bool `json:"disableCheck,omitempty"`
	// Config is the complete network configuration that the plugin reads on stdin, without the
	// parts that belong to one call (prevResult, runtimeConfig, args.cni.ips).
	Config json.RawMessage `json:"config"`
	// AddOnly are the keys of runtimeConfig that the ADD gets and no other verb needs; they are not recorded.
	AddOnly map[string]json.RawMessage `json:"-"`
	// Plugin is the IPAM plugin's type, such as "host-local".
	Plugin string `json:"plugin"`
	// Binary is the absolute path of the plugin's executable.
	Binary string `json:"binary"`
	Path   string `json:"path"`
	IfName string `json:"ifName"`
	NetNS  string `json:"netns"`
	// Args is CNI_ARGS without the keys that belong to one call: a requested address, and
	// K8S_POD_INFRA_CONTAINER_ID where a pod is named.
	Args string `json:"args,omitempty"`
	// Capabilities are those that the plugin object declares true.
	Capabilities []string `json:"capabilities,omitempty"`
	// Profile is the profile of the plugin type at the time of the ADD.
	Profile profile.Profile `json:"profile"`
	// PrevResult is the result of the ADD with this invocation, in CNIVersion; nil if none
	// succeeded. CHECK and DEL get it (CNI spec section 4).
	PrevResult json.RawMessage `json:"prevResult,omitempty"`
	// Requested are the addresses that the ADD requested. CHECK and DEL request the same, because
	// the CNI spec wants the same parameters (section 2).
	Requested []netip.Prefix `json:"requested,omitempty"`
	// StoreProven reports that a lookup found the result of the ADD with this invocation in the
	// plugin's store, so that lookups may verify it (profile.Lookup).
	StoreProven bool `json:"storeProven,omitempty"`
	// AddRefused reports that the plugin refused every ADD with this invocation, or did not run.
	AddRefused bool `json:"addRefused,omitempty"`
	// KeepsLost reports that the ADD with this invocation, under a separate container ID, keeps an address that a
	// container has lost: its DEL is for the release of that container.
	KeepsLost bool `json:"keepsLost,omitempty"`
	// AddActsUntil is the last moment at which an ADD with this invocation whose outcome is unknown
	// may still allocate; a DEL before it proves nothing. It is zero if there is none.
	AddActsUntil time.Time `json:"addActsUntil,omitzero"`
}

// Equal reports whether two invocations call the plugin in exactly the same way. What was
// requested, returned, proven or may still act does not count.
func (inv Invocation) Equal(o Invocation) bool {
	inv.PrevResult, o.PrevResult = nil, nil
	inv.Requested, o.Requested = nil, nil
	inv.StoreProven, o.StoreProven = false, false
	inv.AddRefused, o.AddRefused = false, false
	inv.AddActsUntil, o.AddActsUntil = time.Time{}, time.Time{}
	if inv.ContainerID != o.ContainerID {
		return false
	}
	a, errA := json.Marshal(inv)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// SameAttachment reports whether two invocations identify the same attachment to the same plugin.
func (inv Invocation) SameAttachment(o Invocation) bool {
	return inv.ContainerID == o.ContainerID && inv.IfName == o.IfName && inv.Network == o.Network && inv.Plugin == o.Plugin
}

// Call is one plugin call: its invocation, and whom it is for.
type Call struct {
	Invocation
	// Owner and Pool are the owner and the pool in the API.
	Owner, Pool string
	// Taken reports whether another attachment has an address, which the plugin may have lost; nil if that is not known.
	// Embedded host-local returns such an address only if it is requested.
	Taken func(netip.Addr) bool
}

// Address is one address of a result.
type Address struct {
	// Prefix is the address with the length of its subnet.
	Prefix netip.Prefix `json:"prefix"`
	// Gateway is the zero Addr if the plugin named none.
	Gateway netip.Addr `json:"gateway,omitzero"`
}

func (a Address) Addr() netip.Addr { return a.Prefix.Addr() }

// Addrs returns addresses without their prefix lengths.
func Addrs(list []Address) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, a := range list {
		out[i] = a.Addr()
	}
	return out
}

// Result is the result of an ADD.
type Result struct {
	// Addresses are at least one, each once.
	Addresses []Address `json:"addresses"`
	// MasterMAC is the MAC of the uplink, the first interface without a sandbox; empty if the
	// plugin named none.
	MasterMAC string `json:"masterMAC,omitempty"`
	// InStore reports that a lookup has found exactly these addresses in the plugin's store, under
	// the container ID and interface of the call.
	InStore bool `json:"-"`
	// Raw is the plugin's result in the CNI version of the invocation (prevResult).
	Raw json.RawMessage `json:"raw,omitempty"`
}

// RangeUse is how many addresses of a family the ranges of a network have, and how many of them the plugin
// has leased, also to others. Total is 0 if that is unknown, and rounded if it is large.
type RangeUse struct{ Total, Used float64 }

// Range is where addresses are, compared with the ranges from which a pool's plugin allocates now. It
// is empty if they are inside, or if the ranges are not known.
type Range string

const (
	// RangeOutside: an address is outside. Another node may have it.
	RangeOutside Range = "outside"
	// RangeUnconfigured: the pool has no CNI configuration now, or the profiles cannot be read.
	RangeUnconfigured Range = "unconfigured"
)
