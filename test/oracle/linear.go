package oracle

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
)

// FitsHistory is the promise to one owner: the answers are those of a sidecar
// that does one thing after the other, each at some moment between question and answer.
const FitsHistory Invariant = "every answer fits the owner's history"

// Verb is what an Op asks for.
type Verb string

// The verbs of the API.
const (
	Allocate Verb = "allocate"
	Restore  Verb = "restore"
	Release  Verb = "release"
)

// Outcome is what a client knows afterwards.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused"
	// Unknown: no answer came. The operation was carried out, or it was not.
	Unknown Outcome = "unknown"
)

// Op is one operation as its client saw it.
type Op struct {
	Owner   string
	Verb    Verb
	Outcome Outcome
	// IPv4 and IPv6 tell what an allocate asks for.
	IPv4, IPv6 bool
	// IPs are the addresses that an allocate was answered, one for each family, or
	// the one that was to be restored or released.
	IPs []netip.Addr
	// Began and Ended are before the question and after the answer, or after it
	// was clear that none would come, by one clock that all clients share.
	Began, Ended int64
}

// String names the operation as a failure shows it.
func (o Op) String() string {
	return fmt.Sprintf("%d-%d %s %v %s", o.Began, o.Ended, o.Verb, o.IPs, o.Outcome)
}

// JudgeOps returns each address that two owners had at one moment, and each owner
// whose answers fit no order of its operations. An allocate that was refused
// fits none: the range must be large enough.
func JudgeOps(ops []Op) []Violation {
	byOwner := map[string][]Op{}
	for _, o := range ops {
		byOwner[o.Owner] = append(byOwner[o.Owner], o)
	}
	found := overlaps(byOwner)
	for _, owner := range slices.Sorted(maps.Keys(byOwner)) {
		if l := newLinearizer(byOwner[owner]); !l.fits(attachment{}) {
			found = append(found, Violation{FitsHistory, fmt.Sprintf("no order explains what %q was answered; the longest that does ends before one of %v", owner, l.stuck)})
		}
	}
	return found
}

// tenure is a time in which an owner certainly had an address.
type tenure struct {
	owner    string
	from, to int64
}

// overlaps returns the addresses that two owners had at one moment.
func overlaps(byOwner map[string][]Op) []Violation {
	all := map[netip.Addr][]tenure{}
	for owner, ops := range byOwner {
		for ip, tenures := range tenuresOf(owner, ops) {
			all[ip] = append(all[ip], tenures...)
		}
	}
	var found []Violation
	for _, ip := range slices.SortedFunc(maps.Keys(all), netip.Addr.Compare) {
		slices.SortFunc(all[ip], func(a, b tenure) int { return cmp.Compare(a.from, b.from) })
		var last tenure
		for _, next := range all[ip] {
			if next.from < last.to && next.owner != last.owner {
				found = append(found, Violation{NoDouble, fmt.Sprintf("%q had %s from %d to %d and %q from %d to %d", last.owner, ip, last.from, last.to, next.owner, next.from, next.to)})
			}
			if next.to > last.to {
				last = next
			}
		}
	}
	return found
}

// tenuresOf returns from when to when an owner certainly had which address: from
// an answer with it to the beginning of a release, if none was under way meanwhile.
func tenuresOf(owner string, ops []Op) map[netip.Addr][]tenure {
	releases := map[netip.Addr][]Op{}
	for _, o := range ops {
		if o.Verb == Release {
			releases[o.IPs[0]] = append(releases[o.IPs[0]], o)
		}
	}
	tenures := map[netip.Addr][]tenure{}
	for _, o := range ops {
		if o.Verb == Release || o.Outcome != Done {
			continue
		}
		for _, ip := range o.IPs {
			t := tenure{owner, o.Ended, math.MaxInt64}
			for _, r := range releases[ip] {
				if r.Ended >= o.Began {
					t.to = min(t.to, r.Began)
				}
			}
			if t.from < t.to {
				tenures[ip] = append(tenures[ip], t)
			}
		}
	}
	return tenures
}

// attachment is what an owner has by the sequential rules of the API: one pair
// of addresses, of which each may be handed out. The zero value is none.
type attachment struct {
	exists bool
	// ips are by family; an invalid one has not been seen yet.
	ips     [2]netip.Addr
	claimed [2]bool
}

// after returns what the owner has after an operation that was answered so;
// false if it cannot have been.
func (a attachment) after(o Op) (attachment, bool) {
	switch {
	case o.Verb == Release:
		return a.afterRelease(o)
	case o.Outcome == Refused:
		// A restore of what it has must succeed; another address may be anybody's.
		return a, o.Verb == Restore && (!a.exists || a.ips[family(o.IPs[0])] != o.IPs[0])
	}
	a.exists = true
	for _, ip := range o.IPs {
		f := family(ip)
		if a.ips[f].IsValid() && a.ips[f] != ip {
			return a, false
		}
		a.ips[f], a.claimed[f] = ip, true
	}
	return a, true
}

func (a attachment) afterRelease(o Op) (attachment, bool) {
	ip := o.IPs[0]
	f := family(ip)
	has := a.claimed[f] && a.ips[f] == ip
	if !has || o.Outcome == Refused {
		return a, !has && o.Outcome == Refused
	}
	a.claimed[f] = false
	if a.claimed == [2]bool{} {
		return attachment{}, true
	}
	return a, true
}

func family(ip netip.Addr) int {
	if ip.Is4() {
		return 0
	}
	return 1
}

// linearizer looks for an order of one owner's operations, each at a moment
// between its beginning and its end, that explains every answer (Wing and Gong,
// "Testing and Verifying Concurrent Objects", 1993, with what was tried remembered).
type linearizer struct {
	ops  []Op
	done []byte // '1' for each operation that has its place
	// tried are the situations that led nowhere.
	tried map[situation]bool
	// stuck are the operations of which none could be next when the least were left.
	stuck []Op
	least int
}

type situation struct {
	done string
	has  attachment
}

func newLinearizer(ops []Op) *linearizer {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b Op) int { return cmp.Compare(a.Began, b.Began) })
	return &linearizer{ops: ops, done: slices.Repeat([]byte{'0'}, len(ops)), tried: map[situation]bool{}, least: math.MaxInt}
}

// fits tells whether the operations that have no place yet can follow.
func (l *linearizer) fits(has attachment) bool {
	next := l.next()
	if len(next) == 0 {
		return true
	}
	here := situation{string(l.done), has}
	if l.tried[here] {
		return false
	}
	l.tried[here] = true
	if left := bytes.Count(l.done, []byte{'0'}); left < l.least {
		l.least, l.stuck = left, l.opsAt(next)
	}
	return slices.ContainsFunc(next, func(i int) bool {
		l.done[i] = '1'
		defer func() { l.done[i] = '0' }()
		return l.fitsAfter(l.ops[i], has)
	})
}

// fitsAfter goes on with every outcome that an operation may have had.
func (l *linearizer) fitsAfter(o Op, has attachment) bool {
	if o.Outcome != Unknown {
		then, ok := has.after(o)
		return ok && l.fits(then)
	}
	if l.fits(has) {
		return true
	}
	then, ok := has.carriedOut(o)
	return ok && then != has && l.fits(then)
}

// carriedOut is after, for an operation that nobody was told the outcome of. The
// addresses of an allocate show in what follows.
func (a attachment) carriedOut(o Op) (attachment, bool) {
	if o.Verb == Allocate {
		a.exists = true
		a.claimed = [2]bool{a.claimed[0] || o.IPv4, a.claimed[1] || o.IPv6}
		return a, true
	}
	o.Outcome = Done
	return a.after(o)
}

// next are the operations that may have been next: those that began before any
// other without a place had ended.
func (l *linearizer) next() []int {
	ended := int64(math.MaxInt64)
	for i, o := range l.ops {
		if l.done[i] == '0' {
			ended = min(ended, o.Ended)
		}
	}
	var next []int
	for i, o := range l.ops {
		if l.done[i] == '0' && o.Began <= ended {
			next = append(next, i)
		}
	}
	return next
}

func (l *linearizer) opsAt(indices []int) []Op {
	var ops []Op
	for _, i := range indices {
		ops = append(ops, l.ops[i])
	}
	return ops
}
