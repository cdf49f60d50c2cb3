// Package call is the language in which the engine and a plugin runner speak
// of one CNI IPAM call. It is pure data: no processes, no files.
package call

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// Invocation is everything a DEL or CHECK needs to mean the same attachment as
// the ADD that made it (docs/how-it-works.md, Invocations). A record keeps
// each context until a DEL with it has succeeded, so that a changed conflist,
// a moved binary or an upgraded plugin cannot orphan an address.
type Invocation struct {
	// ContainerID is CNI_CONTAINERID of the calls.
	ContainerID string `json:"containerID"`
	// Network is the name of the CNI network configuration.
	Network string `json:"network"`
	// CNIVersion is the negotiated CNI version of the calls.
	CNIVersion string `json:"cniVersion"`
	// DisableCheck is the network's disableCheck: no CHECK may be asked
	// (CNI spec section 1).
	DisableCheck bool `json:"disableCheck,omitempty"`
	// Config is the complete network configuration sent on stdin, without
	// the parts that belong to one call (prevResult, runtimeConfig, args.cni.ips).
	Config json.RawMessage `json:"config"`
	// Plugin is the IPAM plugin's type, such as "host-local".
	Plugin string `json:"plugin"`
	// Binary is the absolute path of the plugin's executable.
	Binary string `json:"binary"`
	// Path is CNI_PATH: the folders in which the plugin may look for others.
	Path string `json:"path"`
	// IfName is CNI_IFNAME.
	IfName string `json:"ifName"`
	// NetNS is CNI_NETNS, or "ephemeral".
	NetNS string `json:"netns"`
	// Args is CNI_ARGS without what belongs to one call: a requested address, and
	// K8S_POD_INFRA_CONTAINER_ID where a pod is named.
	Args string `json:"args,omitempty"`
	// Capabilities are those the plugin object declares true.
	Capabilities []string `json:"capabilities,omitempty"`
	// Profile is what was known of the plugin type at that time.
	Profile profile.Profile `json:"profile"`
	// PrevResult is what the ADD with this context returned, in CNIVersion; nil
	// if none succeeded. CHECK and DEL are given it (CNI spec section 4).
	PrevResult json.RawMessage `json:"prevResult,omitempty"`
	// Requested are the addresses that the ADD asked for; CHECK and DEL ask for the
	// same, because the CNI spec wants the same parameters again (section 2).
	Requested []netip.Prefix `json:"requested,omitempty"`
	// StoreProven reports that a lookup found the result of the ADD with this context in
	// the plugin's store, so that lookups may verify it (profile.Lookup).
	StoreProven bool `json:"storeProven,omitempty"`
	// AddActsUntil is the last moment at which an ADD with this context whose outcome
	// is unknown may still allocate; a DEL before it is not believed. Zero if
	// there is none.
	AddActsUntil time.Time `json:"addActsUntil,omitzero"`
}

// Equal tells whether two contexts address the plugin in exactly the same way,
// whatever it was asked for, answered or may still do.
func (c Invocation) Equal(o Invocation) bool {
	c.PrevResult, o.PrevResult = nil, nil
	c.Requested, o.Requested = nil, nil
	c.StoreProven, o.StoreProven = false, false
	c.AddActsUntil, o.AddActsUntil = time.Time{}, time.Time{}
	if reflect.DeepEqual(c, o) {
		// As nearly always: that of an ADD and of its result. None is written as null.
		return c.Config == nil || json.Valid(c.Config)
	}
	a, errA := json.Marshal(c)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && slices.Equal(a, b)
}

// Call is one plugin call to be made.
type Call struct {
	// ContainerID is CNI_CONTAINERID.
	ContainerID string
	// Owner is the API's owner; for logs and errors only.
	Owner string
	// Pool is the API's pool; for logs and errors only.
	Pool string
	// Invocation is how the plugin is addressed.
	Invocation Invocation
	// Requested are the addresses an ADD asks for, each with the length of its
	// subnet, or its full length where that is not known; empty for any.
	Requested []netip.Prefix
	// PrevResult is the result of the ADD, in the context's CNI version,
	// for CHECK and DEL; nil if none is known.
	PrevResult json.RawMessage
}

// Address is one address of a result.
type Address struct {
	// Prefix is the address with the length of its subnet.
	Prefix netip.Prefix `json:"prefix"`
	// Gateway is the zero Addr when the plugin named none.
	Gateway netip.Addr `json:"gateway,omitzero"`
}

// Addr is the bare address.
func (a Address) Addr() netip.Addr { return a.Prefix.Addr() }

// Result is what an ADD returned.
type Result struct {
	Addresses []Address `json:"addresses"`
	// MasterMAC is the MAC of the uplink, the first interface without a
	// sandbox; empty if the plugin named none.
	MasterMAC string `json:"masterMAC,omitempty"`
	// InStore reports that a lookup has found exactly these addresses in the plugin's
	// store, under the container ID and interface of the call.
	InStore bool `json:"-"`
	// Raw is the plugin's result in the context's CNI version (prevResult).
	Raw json.RawMessage `json:"raw,omitempty"`
}
