package profiletry

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

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
	// ignored: another address was returned, or one more.
	ignored
	// rejected: the ADD was refused, for an unknown reason.
	rejected
)

// requested is the result of one convention in one form.
type requested struct {
	verdict verdict
	// why is the reason of another verdict than honoured.
	why string
}

// requestEvidence has the results of the conventions, by convention and form.
type requestEvidence map[profile.Request]map[profile.RequestForm]requested

// observeRequests requests addresses by each convention in each form. Both IDs are released by now,
// so both addresses can be requested.
func (t *trial) observeRequests(ctx context.Context, _ *scratch) error {
	t.seen.requests = requestEvidence{}
	targets, why := t.targets()
	for i, convention := range conventions {
		t.seen.requests[convention] = map[profile.RequestForm]requested{}
		for j, form := range forms {
			got := requested{why: why}
			if why == "" {
				s, err := t.newScratch(ctx, fmt.Sprintf("r%d", 1+i*len(forms)+j))
				if err != nil {
					return err
				}
				s.call.Invocation.Profile.Requests, s.call.Invocation.Profile.RequestForm = []profile.Request{convention}, form
				if got, err = t.request(ctx, s, convention, targets); err != nil {
					return err
				}
			}
			t.seen.requests[convention][form] = got
		}
	}
	return nil
}

// targets returns two addresses of one family to be requested, or why there are none. Those that
// two IDs have got are certainly in the pool. A plugin that returns the same address to both has no pool.
func (t *trial) targets() (targets []netip.Prefix, why string) {
	first, second := t.seen.first.result, t.seen.second.result
	if !t.seen.second.succeeded() {
		return nil, "needs two addresses, and the ADD of a second ID " + t.seen.second.text()
	}
	if len(shared(first, second)) > 0 {
		targets = neighbours(first.Addresses[0], 2)
	} else {
		targets = []netip.Prefix{first.Addresses[0].Prefix}
		for _, a := range second.Addresses {
			if a.Addr().Is4() == targets[0].Addr().Is4() {
				targets = append(targets, a.Prefix)
			}
		}
	}
	if len(targets) < 2 {
		return nil, "needs two addresses of one family"
	}
	return targets[:2], ""
}

// request requests the second address, then the first, then the second again: no plugin that ignores
// requests returns the two in this order by a rule such as the lowest, the last or the next
// address. It does not begin with the first: as the lowest one, and the one released last, the
// plugin may return it anyway, and a plugin that adds the requested address to that would return it
// twice, which is not a valid result.
func (t *trial) request(ctx context.Context, s *scratch, convention profile.Request, targets []netip.Prefix) (requested, error) {
	if _, err := s.call.Invocation.Convention(1); err != nil {
		return requested{why: fmt.Sprintf("the network does not declare the capability %q", call.CapabilityIPs)}, nil
	}
	form := s.call.Invocation.Profile.RequestForm
	for _, target := range []netip.Prefix{targets[1], targets[0], targets[0]} {
		s.call.Requested = []netip.Prefix{target}
		a, err := t.add(ctx, s, fmt.Sprintf("request %s by %s as %s", target, convention, form))
		s.call.Requested = nil // whereabouts refuses a DEL, too, whose IP= it cannot parse
		if err != nil {
			return requested{}, err
		}
		if !a.made {
			return requested{why: t.noAdd}, nil
		}
		if _, err := t.del(ctx, s, "release it"); err != nil {
			return requested{}, err
		}
		switch {
		case a.refused():
			return requested{rejected, fmt.Sprintf("the request of %s %s", target, a.text())}, nil
		case !a.succeeded():
			return requested{why: t.noAdd}, nil
		case !t.exactly(a.result, target.Addr()):
			return requested{ignored, fmt.Sprintf("the request of %s %s", target, a.text())}, nil
		}
	}
	return requested{verdict: honoured}, nil
}

// exactly reports whether a result has the requested address, and otherwise no more addresses than
// a result without a request has of other families: an address too many may be one that the plugin
// has not reserved.
func (t *trial) exactly(r call.Result, want netip.Addr) bool {
	return slices.Contains(addrs(r), want) && countOf(r, want.Is4()) == 1 &&
		countOf(r, !want.Is4()) <= countOf(t.seen.first.result, !want.Is4())
}
