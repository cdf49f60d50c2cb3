package attachment

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// An acquisition tries one request after the other. Only judge decides what follows a failed ADD.

// try is how far an acquisition has come.
type try struct {
	Want
	// known are previously held addresses, whose subnets are known.
	known []call.Address
	// tried counts the sets of addresses that were given up; repeated: a request was repeated because of
	// another attachment.
	tried    int
	repeated bool
	// failed is the error of the last ADD.
	failed error
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
	// deleted reports that every DEL before the ADD succeeded.
	deleted bool
	err     error
}

// judge returns the try that follows a failed ADD, or the error with which the acquisition fails.
func (t try) judge(o outcome) (next try, final error) {
	t.failed = o.err
	r, rejected := errors.AsType[*rejectedResult](o.err)
	switch {
	case !rejected && !isPluginRefusal(o.err):
		// CNI's own codes (try again later, invalid configuration) do not say that the plugin refuses
		// this request, and an address that may be available later is not lost for them.
		return t, o.err
	case !o.deleted: // leftovers may have caused the failure
	case rejected && r.repeatable && !t.repeated: // the plugin may return another address now
		t.repeated = true
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
	// holder has an address of the result; nil if the result does not match the request.
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
