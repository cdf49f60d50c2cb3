package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// This file holds the single steps of which protocol.go is made.

// write makes a record durable and then the one in memory. After an error the
// disk may hold either, so memory is not believed before a write has succeeded.
func (o *op) write(r record.Record) error {
	if o.rec == nil || r.State != o.rec.State {
		r.Changed = time.Now()
	}
	if err := o.journal.Write(r); err != nil {
		o.unsure = true
		err = fmt.Errorf("the journal could not be written: %w", err)
		if o.rec == nil {
			return errors.Join(err, o.retract(r))
		}
		return err
	}
	o.unsure = false
	o.setRecord(r)
	return nil
}

// forget removes the record, or keeps only the generation of the next ID while a DEL may
// still act on an earlier one.
func (o *op) forget() error {
	// A generated owner never comes back, so nothing needs to be remembered of it.
	if time.Now().Before(o.rec.LateDel.Until) && !strings.HasPrefix(o.owner, generatedOwner) {
		r := o.rec.Clone()
		r.State, r.Result, r.Invocations = record.Tombstone, call.Result{}, nil
		err := o.write(r)
		if err == nil {
			o.forgetState()
		}
		return err
	}
	if err := o.journal.Remove(o.id); err != nil {
		o.unsure = true
		return fmt.Errorf("%s (container ID %s): the plugin's DEL succeeded, but the record could not be removed; it is tried again in the background: %w", o.key, o.id, err)
	}
	o.unsure = false
	o.mu.Lock()
	o.index.drop(o.entry, o.rec.Result.Addresses)
	o.rec = nil
	o.mu.Unlock()
	o.forgetState()
	return nil
}

// forgetState forgets what was known of an attachment that is no more.
func (o *op) forgetState() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost, o.doubted, o.verified, o.retire = false, false, time.Time{}, false
}

// retract takes a first record back that could not be written, but may be there
// all the same. If that fails, too, it is known from now on, and finished in the
// background.
func (o *op) retract(r record.Record) error {
	err := o.journal.Remove(r.ContainerID)
	if err == nil {
		o.unsure = false
		return nil
	}
	o.setRecord(r)
	return err
}

// setRecord replaces the record in memory and the addresses in the index.
func (o *op) setRecord(r record.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rec != nil {
		o.index.drop(o.entry, o.rec.Result.Addresses)
	}
	o.index.enter(o.entry, r.Network, r.Result.Addresses)
	o.rec = &r
}

// clear runs DEL with each context, drops those from the record in memory that
// are done with, but for today's, and tells whether every DEL succeeded. The disk
// keeps the longer list until the next write: a DEL too many is harmless.
func (o *op) clear(contexts []call.Invocation, today call.Invocation) bool {
	all := true
	var kept []call.Invocation
	for _, c := range contexts {
		began := time.Now() // an ADD that may act during the DEL may act after it
		err := o.del(c)
		if err != nil {
			all = false
			o.log().WithError(err).Warn("DEL failed; it is tried again before the attachment is given up")
		}
		if err != nil || began.Before(c.AddActsUntil) {
			kept = append(kept, c)
		}
	}
	r := o.rec.Clone()
	r.Invocations = withLast(kept, today)
	o.setRecord(r)
	return all
}

// withLast puts a context at the end of a list, in the place of one that is equal.
func withLast(contexts []call.Invocation, last call.Invocation) []call.Invocation {
	return append(slices.DeleteFunc(slices.Clone(contexts), last.Equal), last)
}

// settled reports whether no ADD can still act with a context of the record. It is asked
// before the DEL that is to be the last: an ADD that acts during that DEL may act after it.
func (o *op) settled() bool { return !time.Now().Before(o.addActsUntil()) }

// addActsUntil is when that is so; the zero time if it always was.
func (o *op) addActsUntil() time.Time {
	var last time.Time
	for _, c := range o.rec.Invocations {
		if c.AddActsUntil.After(last) {
			last = c.AddActsUntil
		}
	}
	return last
}

// delAll runs DEL with each context, newest first, because that one holds the
// addresses. The record keeps them all: the caller removes it as a whole.
func (o *op) delAll(contexts []call.Invocation) error {
	var errs []error
	for _, c := range slices.Backward(contexts) {
		errs = append(errs, o.del(c))
	}
	return errors.Join(errs...)
}

// call is a call with a context.
func (o *op) call(c call.Invocation) call.Call {
	return call.Call{
		ContainerID: c.ContainerID, Owner: o.owner, Pool: o.pool,
		Invocation: c, Requested: c.Requested, PrevResult: c.PrevResult,
	}
}

// reserve enters the addresses of a result. If another attachment has one of
// them, the plugin has handed it out twice (step 6): ours is given back by the
// caller, the other one is verified.
func (o *op) reserve(today call.Invocation, res call.Result) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	other, taken := o.index.reserve(o.entry, today.Network, res.Addresses)
	switch {
	case other == nil:
		return nil
	case !today.Profile.Unique:
		return &notWhatWasAsked{fmt.Errorf("plugin %s gives the same addresses %v to everybody, and %s (container ID %s) has them; it was given back: use a network of its own, or ask for another address",
			today.Plugin, addrs(res.Addresses), other.key, other.id)}
	}
	o.counters.Duplicates++
	requested := func(p netip.Prefix) bool { return p.Addr() == taken }
	err := &duplicate{other: other, avoidable: len(today.Requested) > 0 && !slices.ContainsFunc(today.Requested, requested), error: fmt.Errorf("plugin %s returned %v, which %s (container ID %s) has already; it was given back",
		today.Plugin, addrs(res.Addresses), other.key, other.id)}
	if other.lost {
		err.error = fmt.Errorf("%w; the plugin says that it does not hold it for that one: if that owner is gone, release its address", err.error)
	}
	o.log().WithError(err).Error("Duplicate address from the plugin")
	if other.failures > 0 {
		err.other = nil // it is being worked on, and comes back to this by itself
	} else {
		other.verified, other.checked = time.Time{}, false
	}
	return err
}

// unreserve takes a result that could not be recorded out of the index again.
func (o *op) unreserve(res call.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.index.drop(o.entry, res.Addresses)
	if o.rec != nil {
		o.index.enter(o.entry, o.rec.Network, o.rec.Result.Addresses)
	}
}

// notWhatWasAsked is a successful ADD whose result cannot be used.
type notWhatWasAsked struct{ error }

// duplicate is a successful ADD whose result another attachment has. other is to
// be verified; nil if there is nothing to verify.
type duplicate struct {
	error
	other *entry
	// avoidable reports that the address came beside those that were requested.
	avoidable bool
}

// worthAnotherTry tells whether an ADD that asks for less may succeed: the
// plugin is in order, but not willing to give what was asked for. Codes of CNI's
// own (try again later, invalid configuration) do not say that, and an address
// that may be had again is not given up for them.
func worthAnotherTry(err error) bool {
	var e *call.Error
	var n *notWhatWasAsked
	var d *duplicate
	return errors.As(err, &n) || errors.As(err, &d) || errors.As(err, &e) && e.Outcome == call.Refused && e.Code >= call.FirstPluginCode
}

// mayStillAct tells whether what an ADD began may go on behind its process.
func mayStillAct(err error) bool {
	var e *call.Error
	return errors.As(err, &e) && e.Outcome == call.Unknown
}

// lastContext is that of the last ADD.
func (o *op) lastContext() call.Invocation {
	if len(o.rec.Invocations) == 0 {
		return call.Invocation{}
	}
	return o.rec.Invocations[len(o.rec.Invocations)-1]
}

// addresses are those recorded; none if there is no record.
func (o *op) addresses() []netip.Addr { return o.rec.Addrs() }

// owed are the addresses that the owner is to get back: those handed out and not
// taken back, or, where there are none, those that are recorded.
func (o *op) owed() []netip.Addr {
	if o.rec == nil || len(o.rec.Claims) == 0 {
		return o.addresses()
	}
	return slices.DeleteFunc(o.addresses(), func(ip netip.Addr) bool { return !o.rec.Claimed(record.FamilyOf(ip)) })
}

// wanted are the families of a request.
func (e *Engine) wanted(f record.Family) []record.Family {
	if f != "" {
		return []record.Family{f}
	}
	return slices.DeleteFunc([]record.Family{record.IPv4, record.IPv6}, func(f record.Family) bool { return !e.enabled(f) })
}
