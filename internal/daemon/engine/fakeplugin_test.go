package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// pluginProfile returns the shipped profile of a plugin.
func pluginProfile(plugin string) profile.Profile {
	set, err := profile.Load()
	if err != nil {
		panic(err)
	}
	return set.For(plugin)
}

func hostLocal() profile.Profile { return pluginProfile("host-local") }

// checked is the profile of a plugin without requests for addresses, which may act late, and whose CHECK
// reports by its message that nothing is held.
func checked() profile.Profile {
	p := pluginProfile("unknown")
	p.Type, p.VerifyBy, p.CheckProves, p.Lost = "checked", profile.VerifyCheck, profile.ProvesPresence, profile.Lost{Message: "Failed to find address"}
	return p
}

// singleUseIDs is the profile of a plugin that queues its DELs, so that no container ID can be
// used again. It verifies by CHECK.
func singleUseIDs() profile.Profile {
	p := checked()
	p.Type, p.RepeatedAdd, p.Del = "single-use-ids", profile.RepeatedAddSameAnswer, profile.DelQueued
	return p
}

// sameAnswer is the profile of a host-local whose ADD can be repeated.
func sameAnswer() profile.Profile {
	p := hostLocal()
	p.Type, p.RepeatedAdd = "same-answer", profile.RepeatedAddSameAnswer
	return p
}

// Network implements Plugin, as the following methods do.
func (n *fakeNode) Network(pool string) (call.Network, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pool == "blue" && n.blueErr != nil {
		return call.Network{}, n.blueErr
	}
	return call.Network{Name: n.networks[pool], ServesContainers: !n.bare}, n.networkErr
}

func (n *fakeNode) Configured(string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.networkErr == nil {
		n.neverErr = nil
	}
	return n.neverErr
}

func (n *fakeNode) Range(_ string, ips []netip.Addr) call.Range {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.networkErr != nil:
		return call.RangeUnconfigured
	case slices.ContainsFunc(ips, n.isOutside):
		return call.RangeOutside
	default:
		return ""
	}
}

func (n *fakeNode) NewInvocation(_ context.Context, network call.Network, containerID, _ string) (call.Invocation, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return call.Invocation{
		ContainerID: containerID, Network: network.Name, CNIVersion: n.cniVersion,
		Config: json.RawMessage(`{}`), Plugin: n.profile.Type, Profile: n.profile,
	}, n.pluginErr
}

func (n *fakeNode) ContainerInvocation(ctx context.Context, network call.Network, c call.Container) (call.Invocation, error) {
	inv, err := n.NewInvocation(ctx, network, c.ContainerID, "")
	if err == nil {
		inv.IfName = c.IfName
		inv, err = n.WithContainer(inv, c)
	}
	return inv, err
}

func (n *fakeNode) WithContainer(inv call.Invocation, c call.Container) (call.Invocation, error) {
	inv.NetNS, inv.Args = c.NetNS, c.Args
	return inv, nil
}

func (n *fakeNode) CheckConfig(context.Context, call.Network, call.Invocation) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.configErr
}

func (n *fakeNode) GC(_ context.Context, _ call.Invocation, valid []call.Attachment) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id := range n.store {
		if !slices.ContainsFunc(valid, func(v call.Attachment) bool { return v.ContainerID == id }) {
			delete(n.store, id)
		}
	}
	n.steps = append(n.steps, "GC")
	return nil
}

func (n *fakeNode) Add(ctx context.Context, c call.Call) (call.Result, error) {
	var res call.Result
	err := n.call(ctx, "ADD", c, func(injected fault, effect bool) error {
		if injected == timeoutLate {
			n.actLate(c, lateCall, func() { _, _ = n.allocate(c) }) // the result has no reader any more
		}
		if !effect {
			return nil
		}
		got, err := n.allocate(c)
		if err != nil {
			return refusal("ADD", c, 999, err.Error())
		}
		res = resultOf(got)
		res.InStore = !n.lookupFails(c.Invocation)
		return nil
	})
	if err != nil {
		return call.Result{}, err
	}
	return res, nil
}

func (n *fakeNode) Del(ctx context.Context, c call.Call) error {
	return n.call(ctx, "DEL", c, func(injected fault, effect bool) error {
		release := func() { delete(n.store, c.ContainerID) }
		if (injected == timeoutLate || injected == delQueued) && c.Profile.SingleUseIDs() {
			n.queued[c.ContainerID] = true
		}
		switch {
		case injected == timeoutLate:
			n.actLate(c, lateCall, release)
		case injected == delQueued:
			n.actLate(c, queuedDel, release)
		case effect && n.strictDel && len(n.store[c.ContainerID]) == 0:
			return refusal("DEL", c, 100, "nothing is held")
		case effect:
			release()
		}
		return nil
	})
}

func (n *fakeNode) Check(ctx context.Context, c call.Call) error {
	return n.call(ctx, "CHECK", c, func(injected fault, _ bool) error {
		if _, ok := n.store[c.ContainerID]; injected == noFault && !ok {
			return refusal("CHECK", c, 999, "Failed to find address added by container")
		}
		return nil
	})
}

var errNoLookup = errors.New("no lookup")

// lookupFails reports whether the store cannot be read for an invocation.
func (n *fakeNode) lookupFails(inv call.Invocation) bool {
	return inv.Profile.Lookup == profile.LookupNone || n.storeHidden || n.killed
}

func (n *fakeNode) Holds(inv call.Invocation, ips []netip.Addr) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lookupFails(inv) {
		return false, errNoLookup
	}
	lacks := func(ip netip.Addr) bool { return !slices.Contains(n.store[inv.ContainerID], ip) }
	return !slices.ContainsFunc(ips, lacks), nil
}

func (n *fakeNode) Lookup(_ context.Context, inv call.Invocation) (call.Result, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lookupFails(inv) {
		return call.Result{}, errNoLookup
	}
	n.steps = append(n.steps, "lookup")
	found := n.store[inv.ContainerID]
	if slices.ContainsFunc(found, n.isOutside) {
		return resultOf(found), errors.New("in none of the ranges")
	}
	return resultOf(found), n.lookupErr
}

func (n *fakeNode) CommandLine(verb string, c call.Call) string { return verb + " " + c.ContainerID }

// call is one call: do has its effect, with the fault that is injected.
func (n *fakeNode) call(ctx context.Context, verb string, c call.Call, do func(injected fault, effect bool) error) error {
	if ctx.Err() != nil {
		return pluginError(verb, c, notStarted)
	}
	var took time.Duration
	var refuse bool
	var gate chan struct{}
	n.with(func(n *fakeNode) {
		took = n.callTime
		refuse, gate = n.needsPod && c.Profile.PodIdentity == profile.PodIdentityNone, n.addGate
	})
	time.Sleep(took)
	if refuse {
		return refusal(verb, c, 999, "no pod")
	}
	step := verb + " " + c.ContainerID
	if verb == "ADD" {
		step += fmt.Sprint(requestedAddrs(c))
		if gate != nil {
			<-gate
		}
		if n.afterAdd != nil {
			defer n.afterAdd(c)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.onCall != nil {
		n.onCall(ctx, verb, c)
	}
	n.steps = append(n.steps, step)
	injected, effect := n.faultAt(verb)
	return cmp.Or(do(injected, effect), pluginError(verb, c, injected))
}

// allocate is the plugin's ADD; n.mu is held.
func (n *fakeNode) allocate(c call.Call) ([]netip.Addr, error) {
	if held, ok := n.store[c.ContainerID]; ok {
		switch n.profile.RepeatedAdd {
		case profile.RepeatedAddRefused:
			return nil, errors.New("duplicate allocation is not allowed")
		case profile.RepeatedAddSameAnswer:
			return held, nil
		}
	}
	families := []attachment.Family{attachment.IPv4}
	if n.ipv6 {
		families = append(families, attachment.IPv6)
	}
	var requested []netip.Addr
	if len(n.profile.Requests) > 0 && !n.ignoresRequests {
		requested = requestedAddrs(c)
	}
	var got []netip.Addr
	if n.twoSets {
		ip, err := n.pickFirstSet(requested)
		if err != nil {
			return nil, err
		}
		got = append(got, ip)
	}
	for _, family := range families {
		ip, err := n.pick(family, requested)
		if err != nil {
			return nil, err
		}
		got = append(got, ip)
	}
	n.store[c.ContainerID] = append(n.store[c.ContainerID], got...)
	return got, nil
}

// pick returns the requested address of a family, or else its first free one, after the last one if
// the plugin continues.
func (n *fakeNode) pick(family attachment.Family, requested []netip.Addr) (netip.Addr, error) {
	held := slices.Concat(slices.Collect(maps.Values(n.store))...)
	unusable := func(ip netip.Addr) bool { return slices.Contains(held, ip) || n.isOutside(ip) }
	for _, ip := range requested {
		if attachment.FamilyOf(ip) != family || firstSet.Contains(ip) {
			continue
		}
		if unusable(ip) {
			return netip.Addr{}, fmt.Errorf("requested address %s is not available", ip)
		}
		return ip, nil
	}
	first := 0
	if n.continues {
		first = n.last
	}
	for i := range n.rangeSize {
		n.last = (first+i)%n.rangeSize + 1
		if ip := rangeAddr(family, n.last); !unusable(ip) {
			return ip, nil
		}
	}
	return netip.Addr{}, errors.New("no addresses available in range set")
}

var firstSet = netip.MustParsePrefix("10.1.0.0/24")

// pickFirstSet returns the requested address of the first set, or else its first free one.
func (n *fakeNode) pickFirstSet(requested []netip.Addr) (netip.Addr, error) {
	held := slices.Concat(slices.Collect(maps.Values(n.store))...)
	if i := slices.IndexFunc(requested, firstSet.Contains); i >= 0 && slices.Contains(held, requested[i]) {
		return netip.Addr{}, fmt.Errorf("requested address %s is not available", requested[i])
	} else if i >= 0 {
		return requested[i], nil
	}
	ip := firstSet.Addr().Next()
	for slices.Contains(held, ip) {
		ip = ip.Next()
	}
	return ip, nil
}

// isOutside reports whether an address is outside the ranges.
func (n *fakeNode) isOutside(ip netip.Addr) bool {
	return slices.ContainsFunc(n.outside, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// rangeAddr returns the i-th address of a family's range.
func rangeAddr(family attachment.Family, i int) netip.Addr {
	if family == attachment.IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i)})
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
}

func requestedAddrs(c call.Call) []netip.Addr {
	var ips []netip.Addr
	for _, p := range c.Requested {
		ips = append(ips, p.Addr())
	}
	return ips
}

func resultOf(ips []netip.Addr) call.Result {
	res := call.Result{Raw: json.RawMessage(`{"cniVersion":"1.1.0"}`)}
	for _, ip := range ips {
		bits := 24
		if ip.Is6() {
			bits = 64
		}
		res.Addresses = append(res.Addresses, call.Address{Prefix: netip.PrefixFrom(ip, bits)})
	}
	return res
}
