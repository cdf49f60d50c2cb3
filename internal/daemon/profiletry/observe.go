package profiletry

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

type evidence struct {
	// first and second are ADDs of two container IDs, the second while the first is held, third is one after the DEL of
	// the second, and again a repeated ADD of the first.
	first, second, third, again attempt
	// checkHeld is a CHECK of a held ID, checkOther with the result of another address, checkNew of
	// an ID that never had an ADD, checkDeleted of one after its DEL, and checkAgain after its
	// repeated ADD.
	checkHeld, checkOther, checkNew, checkDeleted, checkAgain attempt
	// delNew is a DEL of an ID that never had an ADD, delTwice a second DEL.
	delNew, delTwice attempt
	requests         []requested
}

// observe runs the steps in a safe order: DEL before the first ADD, so that a plugin that cannot
// release does not allocate, and never more than two held addresses at a time.
func (r *run) observe(ctx context.Context) {
	one := r.newScratch(ctx, "1")
	if r.err != nil {
		return
	}
	e, inv := &r.seen, one.call.Invocation
	r.report.Binary, r.report.CNIVersion = inv.Binary, inv.CNIVersion
	r.report.Versions = append(r.report.Versions, r.Plugin.Versions(inv.Binary)...)
	r.findEarlier(inv)
	if inv.HasStatus() {
		err := r.record(Step{Verb: call.VerbStatus, Purpose: "see whether the plugin is ready"}, r.Plugin.Status(ctx, inv))
		r.note(err != nil, "STATUS failed: %v", err)
	}
	e.delNew = r.del(ctx, one, "release an ID that never had an ADD")
	e.first = r.add(ctx, one, "allocate an address")
	if r.err == nil && !e.first.succeeded() {
		r.stop("%w; expected an address. %s", e.first.err, r.whyNoAddress(one))
	}
	if r.err != nil {
		return
	}
	e.checkHeld = r.check(ctx, one, e.first.result, "check a held address")
	r.observeSecond(ctx, one)
	e.again = r.add(ctx, one, "repeat the ADD of a held ID")
	if e.again.refused() {
		e.checkAgain = r.check(ctx, one, e.first.result, "check the held address after the refused ADD")
	}
	r.del(ctx, one, "release the first ID")
	e.delTwice = r.del(ctx, one, "release it again")
	e.checkDeleted = r.check(ctx, one, e.first.result, "check a released address")
	r.undoCheck(ctx, one)
	r.observeRequests(ctx)
}

// whyNoAddress returns what a user should look at when the first ADD fails: the namespace or the pod, if the plugin's
// error names it.
func (r *run) whyNoAddress(s *scratch) string {
	e := r.seen.first.err
	names := func(what string) bool { return what != "" && strings.Contains(e.Msg+" "+e.Details, what) }
	pod, _ := r.Profile.Pod(s.call.Owner, s.call.ContainerID)
	switch {
	case names(s.call.NetNS):
		return "Does the plugin need a network namespace that exists, or another one? --cni-netns names it"
	case names(pod.Namespace + "/" + pod.Name):
		return fmt.Sprintf("Does the plugin allocate for existing pods alone? It cannot be tried: write its profile, with podIdentity %q", profile.PodIdentityGiven)
	}
	return fmt.Sprintf("Does the pool of network %q have at least two that are free, and is the configuration right (%s)?", r.Network.Name, r.Network.File)
}

// observeSecond allocates for a second ID while the first is held, and runs CHECK of a third one that
// never had an ADD, with a result that no ID holds now if there is one.
func (r *run) observeSecond(ctx context.Context, one *scratch) {
	e := &r.seen
	two := r.newScratch(ctx, "2")
	e.second = r.add(ctx, two, "allocate for another ID")
	prev := e.first.result
	if e.second.succeeded() {
		prev = e.second.result
	}
	if !overlap(e.first.result, prev) {
		e.checkOther = r.check(ctx, one, prev, "check a held ID with another address")
	}
	r.del(ctx, two, "release the second ID")
	three := r.newScratch(ctx, "4")
	e.third = r.add(ctx, three, "see whether that has freed the first one's address")
	r.del(ctx, three, "release it")
	never := r.newScratch(ctx, "3")
	e.checkNew = r.check(ctx, never, prev, "check an ID that never had an ADD")
	r.undoCheck(ctx, never)
}

// undoCheck runs DEL after a CHECK of an ID that held nothing.
func (r *run) undoCheck(ctx context.Context, s *scratch) {
	if s.dirty {
		r.del(ctx, s, "release a possible allocation of that CHECK")
	}
}

// The conventions and forms in the order in which they are tried and proposed: the first carries
// several addresses and needs no capability, the last carries one.
var (
	conventions = []profile.Request{profile.RequestArgsCNI, profile.RequestRuntimeConfig, profile.RequestCNIArgs}
	forms       = []profile.RequestForm{profile.FormAddress, profile.FormCIDR}
)

// verdict is the effect of a request on a plugin.
type verdict int

const (
	untried verdict = iota
	// honoured: exactly the requested address was returned, each time.
	honoured
	ignored  // another address was returned, or one more
	rejected // the ADD was refused, for an unknown reason
)

// requested is the effect of requests by a convention in a form, and the observation.
type requested struct {
	convention profile.Request
	form       profile.RequestForm
	verdict    verdict
	saw        string
}

// observeRequests requests addresses by each convention in each form. Both IDs are released by now,
// so both addresses can be requested.
func (r *run) observeRequests(ctx context.Context) {
	targets := r.targets()
	for _, convention := range conventions {
		for _, form := range forms {
			q := requested{convention: convention, form: form}
			s := r.newScratch(ctx, fmt.Sprintf("r%d", 1+len(r.seen.requests)))
			s.call.Profile.Requests, s.call.Profile.RequestForm = []profile.Request{convention}, form
			q.verdict, q.saw = r.request(ctx, s, q, targets)
			r.seen.requests = append(r.seen.requests, q)
		}
	}
}

// targets returns two addresses of one family to be requested, if there are. Those that two IDs
// have got are certainly in the pool. A plugin that returns the same address to both has no pool.
func (r *run) targets() []netip.Prefix {
	first, second := r.seen.first.result, r.seen.second.result
	if overlap(first, second) {
		return neighbours(first.Addresses[0], 2)
	}
	targets := []netip.Prefix{first.Addresses[0].Prefix}
	for _, a := range second.Addresses {
		if a.Addr().Is4() == targets[0].Addr().Is4() {
			targets = append(targets, a.Prefix)
		}
	}
	return targets
}

// request requests the second address, then the first, then the first again: no plugin that ignores
// requests returns the two in this order by a rule such as the lowest, the last or the next
// address. It does not begin with the first: as the lowest one, and the one released last, the
// plugin may return it anyway, and a plugin that adds the requested address to that would return it
// twice, which is not a valid result.
func (r *run) request(ctx context.Context, s *scratch, q requested, targets []netip.Prefix) (v verdict, saw string) {
	if len(targets) < 2 {
		return untried, "was not tried: needs two addresses of one family"
	}
	if _, err := s.call.Convention(1); err != nil {
		return untried, fmt.Sprintf("was not tried: the network does not declare the capability %q", call.CapabilityIPs)
	}
	for _, target := range []netip.Prefix{targets[1], targets[0], targets[0]} {
		a := r.add(ctx, s, fmt.Sprintf("request %s by %s as %s", target, q.convention, q.form), target)
		if a.made {
			r.del(ctx, s, "release it")
		}
		saw := fmt.Sprintf("as %s: the request of %s %s", q.form, target, a)
		switch {
		case a.refused():
			return rejected, "is refused " + saw
		case !a.succeeded():
			return untried, "was not tried " + saw
		case !r.exactly(a.result, target.Addr()):
			return ignored, "is not honoured " + saw
		}
	}
	return honoured, "is honoured as " + string(q.form)
}

// exactly reports whether a result has the requested address, and otherwise no more addresses than
// a result without a request has of other families: an address too many may be one that the plugin
// has not reserved.
func (r *run) exactly(got call.Result, want netip.Addr) bool {
	return slices.Contains(addrs(got), want) && countOf(got, want.Is4()) == 1 &&
		countOf(got, !want.Is4()) <= countOf(r.seen.first.result, !want.Is4())
}
