package profiletry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// NewIDPrefix returns a prefix for the container IDs of one Run, with 48 random bits. An ID with it
// is a DNS label and matches the pattern of the CNI spec (section 2, CNI_CONTAINERID).
func NewIDPrefix() string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	return containerid.TryPrefix + hex.EncodeToString(random[:])
}

// scratch is a container ID that was never used before.
type scratch struct {
	// call is how its verbs are called. PrevResult is the result of its last ADD.
	call call.Call
	// dirty reports that it may hold an address: an ADD or a CHECK came after the last DEL that
	// succeeded.
	dirty bool
	// added reports that it is dirty by an ADD.
	added bool
	// late reports that an ADD had an unknown outcome, and may still allocate.
	late bool
}

func (r *run) newScratch(ctx context.Context, name string) *scratch {
	s := &scratch{}
	if !r.mayCall(ctx) {
		return s
	}
	id := r.IDPrefix + "-" + name
	inv, err := r.Plugin.NewInvocation(ctx, r.Network, id, id)
	if err != nil {
		r.stop("%w", err)
		return s
	}
	s.call = call.Call{Owner: id, Invocation: inv}
	r.scratches = append(r.scratches, s)
	return s
}

// attempt is the result of a call. The zero attempt was not made, and proves nothing.
type attempt struct {
	made bool
	// result is the result of an ADD that succeeded.
	result call.Result
	// err is nil for a success.
	err *call.Error
}

func (a attempt) succeeded() bool { return a.made && a.err == nil }

// refused reports whether the plugin returned a well-formed error.
func (a attempt) refused() bool { return a.err != nil && a.err.Outcome == call.Refused }

func (a attempt) unknown() bool { return a.err != nil && a.err.Outcome == call.Unknown }

func (a attempt) String() string {
	switch {
	case !a.made:
		return "was not run"
	case a.err == nil && len(a.result.Addresses) > 0:
		return "returned " + strings.Join(prefixes(a.result), ", ")
	case a.err == nil:
		return "succeeded"
	case a.err.Outcome == call.Refused:
		return fmt.Sprintf("was refused (code %d: %s)", a.err.Code, a.err.Reason())
	}
	return "ended with an unknown outcome"
}

func prefixes(r call.Result) []string {
	var all []string
	for _, a := range r.Addresses {
		all = append(all, a.Prefix.String())
	}
	return all
}

// addrs returns the addresses of a result, sorted.
func addrs(r call.Result) []netip.Addr {
	return slices.SortedFunc(slices.Values(call.Addrs(r.Addresses)), netip.Addr.Compare)
}

// withoutAddresses returns a result with the prefix length in place of each address.
func withoutAddresses(r call.Result) string {
	text := string(r.Raw)
	for _, a := range r.Addresses {
		text = strings.ReplaceAll(text, a.Prefix.String(), fmt.Sprint("/", a.Prefix.Bits()))
	}
	return text
}

// overlap reports whether two results have an address in common.
func overlap(a, b call.Result) bool {
	return slices.ContainsFunc(addrs(a), func(ip netip.Addr) bool { return slices.Contains(addrs(b), ip) })
}

// countOf returns how many addresses of a family a result has.
func countOf(r call.Result, is4 bool) int {
	return len(slices.DeleteFunc(addrs(r), func(ip netip.Addr) bool { return ip.Is4() != is4 }))
}

// neighbours returns at most n addresses next to one in its subnet, and never the gateway, the first
// or the last address of the subnet.
func neighbours(a call.Address, n int) []netip.Prefix {
	usable := func(ip netip.Addr) bool {
		whole := a.Prefix.Bits() == ip.BitLen()
		return ip.IsValid() && (whole || a.Prefix.Contains(ip.Next()) && a.Prefix.Contains(ip.Prev()))
	}
	var found []netip.Prefix
	for _, step := range []func(netip.Addr) netip.Addr{netip.Addr.Next, netip.Addr.Prev} {
		for ip := step(a.Addr()); usable(ip) && len(found) < n; ip = step(ip) {
			if ip != a.Gateway {
				found = append(found, netip.PrefixFrom(ip, a.Prefix.Bits()))
			}
		}
	}
	return found
}

// mayCall reports whether a further step may begin.
func (r *run) mayCall(ctx context.Context) bool {
	if ctx.Err() != nil {
		r.stop("interrupted")
	}
	return r.err == nil
}

// add runs ADD. It ends the steps if its outcome is unknown: that of the next one might be, too.
func (r *run) add(ctx context.Context, s *scratch, purpose string, requested ...netip.Prefix) attempt {
	c := s.call
	c.Requested = requested // not in s.call: whereabouts refuses a DEL, too, whose IP= it cannot parse
	a := r.step(ctx, s, c, call.VerbAdd, purpose)
	if a.succeeded() {
		s.call.PrevResult = a.result.Raw
	}
	if a.unknown() {
		r.stop("%w", a.err)
	}
	return a
}

// check runs CHECK with a prevResult, if the invocation has that verb.
func (r *run) check(ctx context.Context, s *scratch, prev call.Result, purpose string) attempt {
	if !s.call.HasCheck() {
		return attempt{}
	}
	c := s.call
	c.PrevResult = prev.Raw
	return r.step(ctx, s, c, call.VerbCheck, purpose)
}

// del runs DEL. It ends the steps if the container ID may hold an address and the DEL failed: a
// plugin that does not release must not allocate more.
func (r *run) del(ctx context.Context, s *scratch, purpose string) attempt {
	a := r.step(ctx, s, s.call, call.VerbDel, purpose)
	if a.err != nil && (s.dirty || a.unknown()) {
		r.stop("%w", a.err)
	}
	return a
}

// step makes a call unless the steps have ended. They end with one that is interrupted or whose
// plugin could not be started.
func (r *run) step(ctx context.Context, s *scratch, c call.Call, verb, purpose string) attempt {
	if !r.mayCall(ctx) {
		return attempt{}
	}
	a := r.call(ctx, s, c, verb, purpose)
	if a.err != nil && a.err.Outcome == call.NotStarted && r.mayCall(ctx) {
		r.stop("%w", a.err)
	}
	return a
}

// call runs a verb on a scratch container ID and records it.
func (r *run) call(ctx context.Context, s *scratch, c call.Call, verb, purpose string) attempt {
	a := attempt{made: true}
	var err error
	switch verb {
	case call.VerbAdd:
		s.dirty, s.added = true, true
		a.result, err = r.Plugin.Add(ctx, c)
	case call.VerbCheck:
		s.dirty = true // a CHECK of dhcp acquires a lease
		err = r.Plugin.Check(ctx, c)
	case call.VerbDel:
		err = r.Plugin.Del(ctx, c)
	}
	a.err = r.record(Step{Verb: verb, ContainerID: c.ContainerID, Purpose: purpose, Addresses: prefixes(a.result)}, err)
	switch verb {
	case call.VerbAdd:
		s.late = s.late || a.unknown()
	case call.VerbDel:
		// Of a plugin that refuses the DEL of an ID without an ADD, a CHECK has allocated nothing.
		unused := !s.added && a.refused() && r.seen.delNew.refused()
		s.dirty = s.dirty && a.err != nil && !unused
		s.added = s.added && s.dirty
	}
	return a
}

// record adds a step with its error to the report. It returns the error as a *call.Error.
func (r *run) record(step Step, err error) *call.Error {
	e, ok := errors.AsType[*call.Error](err)
	if err != nil && !ok {
		e = &call.Error{Verb: step.Verb, Plugin: r.Network.IPAMType, ContainerID: step.ContainerID, Outcome: call.Unknown, Err: err}
	}
	step.Outcome = Succeeded
	if e != nil {
		step.Outcome, step.Code, step.Error = string(e.Outcome), e.Code, e.Error()
		r.errors = append(r.errors, e)
	}
	r.report.Steps = append(r.report.Steps, step)
	return e
}

// findEarlier reports the container IDs of earlier runs that were killed. They are not released:
// another one may be running. A store that cannot be read shows none.
func (r *run) findEarlier(inv call.Invocation) {
	held, err := r.Plugin.Held(inv, containerid.TryPrefix)
	if err != nil {
		return
	}
	for _, earlier := range held {
		r.leave(call.Call{Invocation: earlier}, 0, "left by an earlier `profile try` that was killed, unless that is still running")
	}
}

// maxDels is how often a failed DEL is run at the end.
const maxDels = 2

// releaseAll runs DEL for each container ID that may hold an address, the last one first, and
// reports those that may still hold one. After an ADD with an unknown outcome there is always a
// last DEL.
func (r *run) releaseAll(ctx context.Context) {
	var ended time.Time
	outlives := int(r.Profile.ActsUntil(ended).Sub(ended).Seconds())
	for _, s := range slices.Backward(r.scratches) {
		s.dirty = s.dirty || s.late
		var last attempt
		for range maxDels {
			if s.dirty {
				last = r.call(ctx, s, s.call, call.VerbDel, "release the remaining allocations")
			}
		}
		switch {
		case s.dirty:
			r.leave(s.call, 0, fmt.Sprintf("its DEL failed: %v", last.err))
		case s.late && outlives > 0:
			r.leave(s.call, outlives, fmt.Sprintf("the outcome of an ADD is unknown, and by the profile %q it may allocate for %d s: a last DEL is needed after that",
				r.Profile.Type, outlives))
		}
	}
}

func (r *run) leave(c call.Call, after int, reason string) {
	r.report.Leftovers = append(r.report.Leftovers, Leftover{
		ContainerID: c.ContainerID, Reason: reason, AfterSeconds: after, Command: r.Plugin.CommandLine(call.VerbDel, c),
	})
}

func (r *run) leftoverErr() error {
	var ids []string
	for _, l := range r.report.Leftovers {
		ids = append(ids, l.ContainerID)
	}
	if ids == nil {
		return nil
	}
	return errors.New("addresses may be left behind under " + strings.Join(ids, ", ") + "; run the commands that are printed for them")
}
