package profiletry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// ways are how a fakePlugin behaves. The zero value is a plugin like host-local: a repeated ADD is
// refused, CHECK compares presence, requests are ignored.
type ways struct {
	// pool is how many addresses the plugin has; 0 for 8.
	pool int
	// repeated is the result of a repeated ADD; empty for refused.
	repeated profile.RepeatedAdd
	// check is how CHECK works: by "presence" (empty), by "address", "always", "never" or by
	// "allocating", as dhcp.
	check string
	// checkError is the error of a CHECK that fails; ID stands for the container ID. Empty for a
	// text like host-local's, of code 999.
	checkError call.Error
	// requests has how a request by a convention and form is handled, as "CNI_ARGS cidr": "honour",
	// "extra" (an unreserved address more), "refuse" (by ADD and DEL), "first" (only the first ADD
	// is honoured); ignored otherwise.
	requests map[string]string
	// same gives every ID the same address and keeps nothing.
	same bool
	// strictDel refuses a DEL of an ID that holds nothing.
	strictDel bool
	// delError is the message of that refusal and details its details, addError the message of a refused ADD; each has a
	// default.
	delError, details, addError string
	// delFrees: a DEL of any ID also frees the first address.
	delFrees bool
	// ofID: the result has a route that depends on the container ID.
	ofID bool
	// rollback releases the addresses of an ID when its repeated ADD is refused.
	rollback bool
	// version is the CNI version; empty for 1.1.0.
	version string
	// capabilities are the network's.
	capabilities []string
}

// fakePlugin is a plugin in memory with the interface of a runner.
type fakePlugin struct {
	t *testing.T
	ways
	// store has the addresses that each ID holds.
	store map[string][]netip.Addr
	next  int
	// earlier are the invocations of an earlier run that still hold addresses.
	earlier []call.Invocation
	// calls counts the calls; before is called with the number of each, from 1, and its verb. An
	// error that it returns is the error of the call; done reports that the call does its work anyway.
	calls  int
	before func(n int, verb string) (err *call.Error, done bool)
}

func newFake(t *testing.T, w ways) *fakePlugin {
	if w.pool == 0 {
		w.pool = 8
	}
	if w.version == "" {
		w.version = "1.1.0"
	}
	return &fakePlugin{t: t, ways: w, store: map[string][]netip.Addr{}}
}

const fakeIDPrefix = containerid.TryPrefix + "0123456789ab"

// options returns the options of a run with the plugin with a profile.
func (f *fakePlugin) options(p profile.Profile) Options {
	return Options{Plugin: f, Network: call.Network{Name: "net", File: "10-net.conflist", IPAMType: "fake"}, Profile: p, IDPrefix: fakeIDPrefix}
}

func (f *fakePlugin) NewInvocation(_ context.Context, n call.Network, id, _ string) (call.Invocation, error) {
	return call.Invocation{
		ContainerID: id, Network: n.Name, Plugin: "fake", Binary: "/bin/fake", IfName: "eth0", NetNS: "/none",
		CNIVersion: f.version, Capabilities: f.capabilities, Profile: profile.Profile{Type: "fake"},
	}, nil
}

func (f *fakePlugin) Versions(string) []string { return []string{f.version} }

func (f *fakePlugin) Held(call.Invocation, string) ([]call.Invocation, error) { return f.earlier, nil }

func (f *fakePlugin) CommandLine(verb string, c call.Call) string { return verb + " " + c.ContainerID }

// begin counts a call, and fails the test if it is for an ID of another client.
func (f *fakePlugin) begin(ctx context.Context, verb, id string) (err error, done bool) {
	if !strings.HasPrefix(id, fakeIDPrefix) && verb != call.VerbStatus {
		f.t.Errorf("%s of container ID %q, want one with the prefix", verb, id)
	}
	if ctx.Err() != nil {
		return &call.Error{Verb: verb, Outcome: call.NotStarted, Err: ctx.Err()}, false
	}
	f.calls++
	if f.before != nil {
		if failure, done := f.before(f.calls, verb); failure != nil {
			failure.Verb, failure.ContainerID = verb, id
			return failure, done
		}
	}
	return nil, true
}

func refusal(verb, text string) *call.Error {
	return &call.Error{Verb: verb, Plugin: "fake", Outcome: call.Refused, Code: 999, Msg: text}
}

func (f *fakePlugin) Add(ctx context.Context, c call.Call) (call.Result, error) {
	err, done := f.begin(ctx, call.VerbAdd, c.ContainerID)
	if !done {
		return call.Result{}, err
	}
	got, refused := f.allocate(c)
	if err == nil && refused != nil {
		err = refused
	}
	if err != nil {
		return call.Result{}, err
	}
	res := resultOf(got...)
	if f.ofID {
		res.Raw = fmt.Appendf(nil, `{"routes":[{"dst":%q}]}`, c.ContainerID)
	}
	return res, nil
}

// allocate is the work of an ADD.
func (f *fakePlugin) allocate(c call.Call) ([]netip.Addr, *call.Error) {
	if f.same && len(c.Requested) == 0 {
		return []netip.Addr{addr(1)}, nil
	}
	held := f.store[c.ContainerID]
	switch {
	case len(held) == 0 || f.repeated == profile.RepeatedAddAnotherAddress:
	case f.repeated == profile.RepeatedAddSameAnswer:
		return held, nil
	default:
		if f.rollback {
			delete(f.store, c.ContainerID)
		}
		return nil, refusal(call.VerbAdd, cmp.Or(f.addError, fmt.Sprintf("%s has been allocated to %s", held[0], c.ContainerID)))
	}
	free, err := f.free()
	if err != nil {
		return nil, err
	}
	if len(c.Requested) > 0 {
		return f.handle(c, free)
	}
	f.store[c.ContainerID] = append(held, free)
	return []netip.Addr{free}, nil
}

// handle is the work of an ADD with a request.
func (f *fakePlugin) handle(c call.Call, free netip.Addr) ([]netip.Addr, *call.Error) {
	p, want, way := c.Invocation.Profile, c.Requested[0].Addr(), f.wayOf(c)
	got := []netip.Addr{free}
	if way == "honour" || way == "first" {
		got = []netip.Addr{want}
	}
	if way == "refuse" {
		return nil, refusal(call.VerbAdd, "that form is not supported")
	}
	if way == "first" {
		f.requests[string(p.Requests[0])+" "+string(p.RequestForm)] = ""
	}
	f.store[c.ContainerID] = slices.Clone(got)
	if f.same {
		delete(f.store, c.ContainerID)
	}
	if way == "extra" {
		got = append(got, want)
	}
	return got, nil
}

// wayOf returns how the request of a call is handled.
func (f *fakePlugin) wayOf(c call.Call) string {
	p := c.Invocation.Profile
	return f.requests[string(p.Requests[0])+" "+string(p.RequestForm)]
}

// free returns the next free address, in a circle.
func (f *fakePlugin) free() (netip.Addr, *call.Error) {
	for range f.pool {
		ip := addr(f.next%f.pool + 1)
		f.next++
		taken := false
		for _, held := range f.store {
			taken = taken || slices.Contains(held, ip)
		}
		if !taken {
			return ip, nil
		}
	}
	return netip.Addr{}, refusal(call.VerbAdd, "no IP addresses available")
}

func (f *fakePlugin) Del(ctx context.Context, c call.Call) error {
	err, done := f.begin(ctx, call.VerbDel, c.ContainerID)
	if !done {
		return err
	}
	if len(c.Requested) > 0 && f.wayOf(c) == "refuse" {
		return refusal(call.VerbDel, "that form is not supported")
	}
	_, held := f.store[c.ContainerID]
	delete(f.store, c.ContainerID)
	for id, ips := range f.store {
		if f.delFrees && slices.Contains(ips, addr(1)) {
			delete(f.store, id)
			f.next = 0
		}
	}
	if err == nil && f.strictDel && !held {
		e := refusal(call.VerbDel, cmp.Or(f.delError, "unknown container"))
		e.Details = f.details
		return e
	}
	return err
}

func (f *fakePlugin) Check(ctx context.Context, c call.Call) error {
	err, done := f.begin(ctx, call.VerbCheck, c.ContainerID)
	if !done || err != nil {
		return err
	}
	held := f.store[c.ContainerID]
	ok := len(held) > 0
	switch f.check {
	case "address":
		ok = ok && slices.Contains(held, prevOf(f.t, c))
	case "always":
		ok = true
	case "never":
		ok = false
	case "allocating":
		if len(held) == 0 {
			ip, err := f.free()
			if err != nil {
				return err
			}
			f.store[c.ContainerID] = []netip.Addr{ip}
		}
		ok = true
	}
	if ok {
		return nil
	}
	if f.checkError.Code == 0 {
		return refusal(call.VerbCheck, "fake: Failed to find address added by container "+c.ContainerID)
	}
	e := f.checkError
	e.Verb, e.Outcome, e.Msg = call.VerbCheck, call.Refused, strings.ReplaceAll(e.Msg, "ID", c.ContainerID)
	return &e
}

func (f *fakePlugin) Status(ctx context.Context, _ call.Invocation) error {
	err, _ := f.begin(ctx, call.VerbStatus, "")
	return err
}

// addr returns the n-th address of the pool.
func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(n + 1)}) }

func resultOf(ips ...netip.Addr) call.Result {
	var r call.Result
	var listed []map[string]string
	for _, ip := range ips {
		a := call.Address{Prefix: netip.PrefixFrom(ip, 24), Gateway: netip.MustParseAddr("10.1.0.1")}
		r.Addresses = append(r.Addresses, a)
		listed = append(listed, map[string]string{"address": a.Prefix.String(), "gateway": "10.1.0.1"})
	}
	r.Raw, _ = json.Marshal(map[string]any{"cniVersion": "1.1.0", "ips": listed})
	return r
}

// prevOf returns the address of prevResult.
func prevOf(t *testing.T, c call.Call) netip.Addr {
	t.Helper()
	var prev struct {
		IPs []struct{ Address netip.Prefix } `json:"ips"`
	}
	if err := json.Unmarshal(c.PrevResult, &prev); err != nil || len(prev.IPs) == 0 {
		t.Fatalf("prevResult %s: %v, want an address", c.PrevResult, err)
	}
	return prev.IPs[0].Address.Addr()
}
