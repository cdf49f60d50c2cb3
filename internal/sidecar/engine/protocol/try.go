package protocol

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// An acquisition tries one request after the other. Only judge decides what follows a failed ADD.
const (
	// MaxRepeats bounds how often an acquisition repeats a request because of another attachment.
	MaxRepeats = 16
	// minPause and maxPause bound the wait before a repeated request, if another acquisition may be the
	// cause. It doubles with each repetition; all together take about 10 s.
	minPause, maxPause = 10 * time.Millisecond, time.Second
)

// try is how far an acquisition has come.
type try struct {
	Want
	// known are previously held addresses, whose subnets are known.
	known []call.Address
	// tried counts the sets of addresses that were given up, repeated the repetitions of one. conflict is
	// the address of the last conflict.
	tried, repeated int
	conflict        netip.Addr
	// failed is the error of the last ADD, and pause the wait before the next one.
	failed error
	pause  time.Duration
}

// requests returns the sets of addresses that are left to request; nil requests any.
func (t try) requests(inv call.Invocation) [][]netip.Addr {
	sets := t.candidates(inv)
	return sets[min(t.tried, len(sets)-1):]
}

// prefixes returns addresses with the length of their subnet, or their full length if it is unknown.
func (t try) prefixes(ips []netip.Addr) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, ip := range ips {
		prefix := netip.PrefixFrom(ip, ip.BitLen())
		if i := slices.IndexFunc(t.known, func(a call.Address) bool { return a.Addr() == ip }); i >= 0 {
			prefix = t.known[i].Prefix
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes
}

// outcome is a failed ADD.
type outcome struct {
	// requests are the sets of addresses that were left; the ADD requested the first one.
	requests [][]netip.Addr
	// deleted reports that every DEL before the ADD succeeded, othersRan that another acquisition of
	// the pool was in progress meanwhile.
	deleted, othersRan bool
	err                error
}

// judge returns the try that follows a failed ADD, or the error with which the acquisition fails.
func (t try) judge(o outcome) (next try, final error) {
	t.failed, t.pause = o.err, 0
	r, rejected := errors.AsType[*rejectedResult](o.err)
	requested := o.requests[0]
	switch {
	case !rejected && !isPluginRefusal(o.err):
		// CNI's own codes (try again later, invalid configuration) do not say that the plugin refuses
		// this request, and an address that may be available later is not lost for them.
		return t, o.err
	case !o.deleted: // leftovers may have caused the failure
	case rejected && r.repeatable && t.repeated < MaxRepeats && (len(requested) > 0 || r.ip != t.conflict):
		// A plugin that continues after its last address, as host-local does, returns others next time.
		// One that returns the same address twice, though none was requested, has probably no other.
		t.repeated, t.conflict = t.repeated+1, r.ip
	case o.othersRan && t.repeated < MaxRepeats && len(requested) > 0 && len(t.Claimed) > 0 && !(rejected && r.holder != nil):
		// The plugin may return a reserved address to another owner, which releases it again. Until that
		// DEL it refuses the address to the owner for whom it is reserved.
		t.repeated, t.pause = t.repeated+1, min(minPause<<t.repeated, maxPause)
	case len(o.requests) == 1:
		return t, o.err
	default:
		t.tried++
	}
	return t, nil
}

// rejectedResult is a successful ADD whose result is not used: another request may succeed.
type rejectedResult struct {
	error
	// ip is the address because of which it is rejected, and that holder has. Without one the result
	// does not match the request.
	ip     netip.Addr
	holder *Other
	// repeatable reports that the same request may return another address: this one was not
	// requested, and others were, or the plugin does not hold it for holder.
	repeatable bool
	// holderIsFree reports that holder is lost and that the result had all its addresses: the plugin
	// holds none of them.
	holderIsFree bool
}

// isPluginRefusal reports whether the plugin works but refuses a request.
func isPluginRefusal(err error) bool {
	e, ok := errors.AsType[*call.Error](err)
	return ok && e.IsPluginRefusal()
}

// isRefused reports whether the plugin refused a call, or did not run.
func isRefused(err error) bool {
	e, ok := errors.AsType[*call.Error](err)
	return ok && e.Outcome != call.Unknown
}

// outcomeUnknown reports whether the plugin may still act on a failed call.
func outcomeUnknown(err error) bool {
	e, ok := errors.AsType[*call.Error](err)
	return ok && e.Outcome == call.Unknown
}
