package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Linearizable is the promise to one owner: the responses are as if the daemon ran
// one operation after the other, each at some moment between request and response.
const Linearizable Invariant = "the owner's operations are linearizable"

// Verb is the kind of an Op.
type Verb string

// The verbs of the API.
const (
	Allocate Verb = "allocate"
	Restore  Verb = "restore"
	Release  Verb = "release"
)

// Outcome is the result of an Op as its client knows it.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused"
	// Unknown: no response came, or one to work in progress. The operation was carried out, or it was not.
	Unknown Outcome = "unknown"
)

// Op is one operation as its client saw it.
type Op struct {
	Owner   string
	Verb    Verb
	Outcome Outcome
	// IPv4 and IPv6 are the families that an allocate requests.
	IPv4, IPv6 bool
	// IPs are the addresses in the response to an allocate, or the one to restore or release.
	IPs []netip.Addr
	// Began and Ended are before the request and after the response, or after the client
	// knew that none would come, by one clock that all clients share.
	Began, Ended int64
}

// String describes the operation in a test failure.
func (o Op) String() string {
	return fmt.Sprintf("%d-%d %s %q %v %s", o.Began, o.Ended, o.Verb, o.Owner, o.IPs, o.Outcome)
}

// CheckOps returns a violation for each address whose operations are not linearizable with
// one owner at a time (NoDouble), and for each owner whose operations are not linearizable
// by the sequential rules of the API (Linearizable). An allocate that was refused is never
// allowed: the range must be large enough.
func CheckOps(ops []Op) []Violation {
	byAddr, byOwner := map[netip.Addr][]Op{}, map[string][]Op{}
	for _, o := range ops {
		byOwner[o.Owner] = append(byOwner[o.Owner], o)
		for _, ip := range o.IPs {
			byAddr[ip] = append(byAddr[ip], o)
		}
	}
	var found violations
	for _, ip := range slices.SortedFunc(maps.Keys(byAddr), netip.Addr.Compare) {
		if err := linearizable(addressState{}, byAddr[ip]); err != nil {
			found.add(NoDouble, "no order gives %s to one owner at a time: %v", ip, err)
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(byOwner)) {
		if err := linearizable(ownerState{}, byOwner[owner]); err != nil {
			found.add(Linearizable, "no order explains the responses to %q: %v", owner, err)
		}
	}
	return found
}

// specState is a state of a sequential specification. States of one type are comparable.
type specState interface {
	// after returns every state that may follow an operation with its outcome; none if the
	// operation cannot have had that outcome in this state.
	after(o Op) []any
}

// linearizable returns nil if the specification allows an order of the operations. Otherwise the error
// has the end of the longest order of some, and the operations that it lacks.
func linearizable(initial specState, ops []Op) error {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		Step: func(s, _, op any) []any { return s.(specState).after(op.(Op)) },
	}
	model := nondeterministic.ToModel()
	ops = slices.SortedFunc(slices.Values(ops), func(a, b Op) int { return cmp.Compare(a.Began, b.Began) })
	history := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		history[i] = porcupine.Operation{Output: o, Call: o.Began, Return: o.Ended}
	}
	if porcupine.CheckOperations(model, history) {
		return nil
	}
	_, info := porcupine.CheckOperationsVerbose(model, history, 0)
	var longest []int
	for _, partial := range info.PartialLinearizations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	var ordered, missing []Op
	for i, o := range ops {
		if slices.Contains(longest, i) {
			ordered = append(ordered, o)
		} else {
			missing = append(missing, o)
		}
	}
	const shown = 3
	return fmt.Errorf("%d of %d operations have one, up to %v; it lacks %v",
		len(ordered), len(ops), ordered[max(0, len(ordered)-shown):], missing[:min(shown, len(missing))])
}

// addressState is the state of an address: the owner that holds it; empty for none.
type addressState struct{ holder string }

func (a addressState) after(o Op) []any {
	switch {
	case o.Outcome == Refused, o.Verb == Release && a.holder != o.Owner:
		return []any{a}
	case o.Verb != Release && a.holder != "" && a.holder != o.Owner:
		return unchangedIf(o.Outcome == Unknown, a)
	}
	next := addressState{}
	if o.Verb != Release {
		next.holder = o.Owner
	}
	return append(unchangedIf(o.Outcome == Unknown, a), next)
}

// ownerState has at most one address of each family of an owner, of which each may be claimed.
type ownerState struct {
	exists bool
	// ips are by family; one that no response has shown yet is invalid.
	ips     [2]netip.Addr
	claimed [2]bool
}

func (a ownerState) after(o Op) []any {
	unchanged := unchangedIf(o.Outcome == Unknown, a)
	switch {
	case o.Outcome == Refused:
		return unchangedIf(a.mayRefuse(o), a)
	case o.Verb == Release:
		return append(unchanged, a.release(o.IPs[0])...)
	case o.Verb == Allocate && o.Outcome == Unknown:
		// The addresses show in what follows.
		a.exists = true
		a.claimed = [2]bool{a.claimed[0] || o.IPv4, a.claimed[1] || o.IPv6}
		return append(unchanged, a)
	default:
		return append(unchanged, a.claim(o.IPs)...)
	}
}

// mayRefuse reports whether an operation may fail: a restore of another address, which any
// owner may hold, and a release of one that is not claimed.
func (a ownerState) mayRefuse(o Op) bool {
	switch o.Verb {
	case Restore:
		return !a.exists || a.ips[Family(o.IPs[0])] != o.IPs[0]
	case Release:
		return !a.claims(o.IPs[0])
	default:
		return false
	}
}

func (a ownerState) claims(ip netip.Addr) bool {
	return a.claimed[Family(ip)] && a.ips[Family(ip)] == ip
}

// claim returns the attachment with addresses claimed, if it can have them.
func (a ownerState) claim(ips []netip.Addr) []any {
	a.exists = true
	for _, ip := range ips {
		f := Family(ip)
		if a.ips[f].IsValid() && a.ips[f] != ip {
			return nil
		}
		a.ips[f], a.claimed[f] = ip, true
	}
	return []any{a}
}

// release returns the attachment without a claim; nothing is held without any.
func (a ownerState) release(ip netip.Addr) []any {
	if !a.claims(ip) {
		return nil
	}
	a.claimed[Family(ip)] = false
	if a.claimed == [2]bool{} {
		a = ownerState{}
	}
	return []any{a}
}

func unchangedIf(possible bool, s specState) []any {
	if !possible {
		return nil
	}
	return []any{s}
}

// Family returns 0 for an IPv4 address and 1 for an IPv6 address.
func Family(ip netip.Addr) int {
	if ip.Is4() {
		return 0
	}
	return 1
}
