package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// An acquisition tries one request after the other. Only judge decides what follows a failed ADD.

// try is how far an acquisition has come.
type try struct {
	*Operation
	Want
	// known are previously held addresses, whose subnets are known.
	known []call.Address
	// tried counts the sets of addresses that were given up; repeated: a request was repeated because of
	// another attachment.
	tried    int
	repeated bool
	// failed is the error of the last ADD.
	failed error
	// previous is the attachment in cooldown whose addresses the pod of this container had.
	previous Other
	// ended are the addresses of the spare attachment that was released last, because the range may be full.
	ended []netip.Addr
	// missing are the addresses that containers were found to have lost, and those of cooldowns that were ended.
	missing []netip.Addr
	// proven is the earlier ADD with the invocation that is repeated, whose result the plugin's store had; nil for none.
	proven *call.Invocation
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

// judge reports whether another ADD follows a failed one, and makes t the try of that. The failed one requested the first
// of the sets of addresses that were left. deleted reports that every DEL before it succeeded.
func (t *try) judge(requests [][]netip.Addr, deleted bool, err error) (again bool) {
	t.failed = err
	r, rejected := errors.AsType[*rejectedResult](err)
	switch {
	case rejected && r.ofPod:
		return false
	case !rejected && !isPluginRefusal(err):
		// CNI's own codes (try again later, invalid configuration) do not say that the plugin refuses
		// this request, and an address that may be available later is not lost for them.
		return false
	case !deleted: // leftovers may have caused the failure
	case rejected && (r.missing || r.ended):
	case rejected && r.repeatable && !t.repeated: // the plugin may return another address now
		t.repeated = true
	case len(requests) == 1:
		return false
	default:
		t.tried++
	}
	return true
}

// rejectedResult is a successful ADD whose result is not used: another request may succeed.
type rejectedResult struct {
	error
	// holder has an address of the result; nil if the result does not match the request.
	holder *Other
	// repeatable reports that the same request may return another address: this one was not
	// requested, and others were, or the plugin does not hold it for holder.
	repeatable bool
	// holderIsFree reports that the result had an address of holder, of a container all, which is lost or cannot be
	// verified: the plugin does not hold it for holder.
	holderIsFree bool
	// missing: the result had an address that a container has lost, which may hold another one. That container cannot get it
	// again, because its DEL would release both.
	missing bool
	// ended: holder is in cooldown, which ends: no owner uses the address that the plugin has allocated again.
	ended bool
	// ofPod: another container of the same pod has it, which is the same to the plugin: a DEL would release it there.
	ofPod bool
}

// reserve sets the addresses of a result aside. If another attachment has one of them,
// the plugin allocated it twice (step 6): the caller releases ours, and the other attachment
// is verified. One that is reacquired because of another one yields: it has no third one reacquired, or lost
// attachments could go on for long.
func (t *try) reserve(inv call.Invocation, res call.Result) error {
	came := call.Addrs(res.Addresses)
	other, ip := t.World.Reserve(inv.Network, came)
	switch {
	case !ip.IsValid():
		return nil
	case other.Record != nil && other.Record.State == Cooldown && !slices.Contains(t.missing, ip):
		return &rejectedResult{holder: &other, ended: true, error: fmt.Errorf("plugin %s returned %v, which %s (container ID %s) has in cooldown; ours was released, and the cooldown ends: try again", inv.Plugin, came, other, other.ID)}
	case inv.Profile.Key() == profile.KeyedByPod && other.Record != nil && other.Record.SharesPod(inv):
		return &rejectedResult{ofPod: true, error: fmt.Errorf("plugin %s returned %v, which another container of the pod has (%s): to this plugin they are one, so nothing was released, and that container must end first", inv.Plugin, came, other)}
	case !inv.Profile.Unique:
		return &rejectedResult{error: fmt.Errorf("plugin %s returns the same addresses %v for every attachment, and %s (container ID %s) has them; ours was released: configure a separate network, or request another address",
			inv.Plugin, came, other, other.ID)}
	}
	r := &rejectedResult{
		error: fmt.Errorf("plugin %s returned %v, which %s (container ID %s) has already; ours was released",
			inv.Plugin, came, other, other.ID),
		holder: &other,
	}
	lost := other.Lost || !other.Record.provable()
	if lost {
		r.error = fmt.Errorf("%w; the plugin no longer holds it for that owner: if that owner does not exist, release its address", r.error)
	}
	if !t.yields {
		requested := slices.ContainsFunc(inv.Requested, func(p netip.Prefix) bool { return p.Addr() == ip })
		r.repeatable = !requested && (len(inv.Requested) > 0 || lost)
		// The DEL frees all addresses of a container: one that is lost does not justify it.
		missing := func(ip netip.Addr) bool { return OfContainer(other.Owner) && !slices.Contains(came, ip) }
		r.holderIsFree = lost && !slices.ContainsFunc(other.Record.Addrs(), missing)
		if r.missing = lost && !r.holderIsFree && !requested && !slices.Contains(t.missing, ip); r.missing {
			t.missing = append(t.missing, ip)
		}
	}
	t.World.Report(Event{EventDuplicate, r})
	t.World.Settle(other, Doubted, false)
	return r
}

// settleOthers does on other attachments what became possible with the DELs of this try.
func (t *try) settleOthers() {
	switch r, _ := errors.AsType[*rejectedResult](t.failed); {
	case r == nil:
	case r.holderIsFree:
		t.World.Settle(*r.holder, Freed, false)
	case r.missing:
		t.World.Settle(*r.holder, Missing, true)
	case r.ended:
		t.missing = append(t.missing, r.holder.Record.Addrs()...)
		t.World.Settle(*r.holder, EndCooldown, true)
	}
	if t.previous.Owner != "" { // its addresses are reserved now
		t.World.Settle(t.previous, EndCooldown, true)
		t.previous = Other{}
	}
}

// adopt records what the plugin's store holds for the container ID of an owner without a record: the
// journal was lost. Every enabled family is claimed for good, also one that is not requested: the owner
// may use it. If none is enabled, all are claimed, so that they can be released. absent reports that
// the store provably holds nothing, so that an ADD needs no DEL before it. Addresses that cannot be
// adopted are requested from the ADD; if another attachment has one, the DEL before it releases ours.
func (t *try) adopt(inv call.Invocation) (adopted, absent bool, err error) {
	found, err := t.World.Lookup(inv)
	if len(found.Addresses) == 0 {
		return false, err == nil, nil
	}
	switch { // an address that is excluded by now was allocated before, and may be in use
	case err != nil && len(t.Required) > 0:
		return false, false, NewError(Failed, "%s holds %v in the plugin's store, outside of its configuration; allocate to replace that: %w", t, call.Addrs(found.Addresses), err)
	case err != nil:
		found := slices.DeleteFunc(found.Addresses, func(a call.Address) bool { return t.excludes(a.Addr()) || t.outside(a.Addr()) })
		t.known, t.Want = found, t.preferring(call.Addrs(found))
		return false, false, nil
	}
	var families []Family
	for _, a := range found.Addresses {
		families = append(families, FamilyOf(a.Addr()))
	}
	if slices.ContainsFunc(families, t.Opts.Enabled) {
		families = slices.DeleteFunc(families, func(f Family) bool { return !t.Opts.Enabled(f) })
	}
	if err := t.reserve(inv, found); err != nil {
		if r, ok := errors.AsType[*rejectedResult](err); ok && r.holder != nil {
			return false, false, nil
		}
		return false, false, err
	}
	found.InStore = true
	if err := t.commit(inv, found, families, false); err != nil {
		return false, false, err
	}
	t.World.Report(Event{Kind: EventAdopted})
	return true, false, nil
}
