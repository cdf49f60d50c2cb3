package attachment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
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
		return fmt.Errorf("the journal could not be written: %w", err)
	}
	o.unsure = false
	o.setRecord(r)
	return nil
}

// forget removes the record, or keeps only the generation where an ID that was
// released must not be used again.
func (o *op) forget() error {
	if o.lastContext().Profile.LateDel {
		r := o.rec.Clone()
		r.State, r.Result, r.Contexts, r.Generation = record.Spent, call.Result{}, nil, r.Generation+1
		return o.write(r)
	}
	if err := o.journal.Remove(o.id); err != nil {
		o.unsure = true
		return fmt.Errorf("%s (container ID %s): the plugin's DEL succeeded, but the record could not be removed; it is tried again in the background: %w", o.key, o.id, err)
	}
	o.unsure = false
	o.mu.Lock()
	defer o.mu.Unlock()
	o.index.drop(o.entry, o.rec.Result.Addresses)
	o.rec, o.lost, o.verified, o.retire = nil, false, time.Time{}, false
	return nil
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

// clear runs DEL with each context, drops those from the record in memory with
// which it succeeded, but for today's, and tells whether all did. The disk keeps
// the longer list until the next write: a DEL too many is harmless.
func (o *op) clear(contexts []call.Context, today call.Context) bool {
	var failed []call.Context
	for _, c := range contexts {
		if err := o.plugin.Del(context.Background(), o.call(c)); err != nil {
			o.log().WithError(err).Warn("DEL failed; it is tried again before the attachment is given up")
			failed = append(failed, c)
		}
	}
	r := o.rec.Clone()
	r.Contexts = append(slices.DeleteFunc(slices.Clone(failed), today.Equal), today)
	o.setRecord(r)
	return len(failed) == 0
}

// del runs DEL with each context, newest first, because that one holds the
// addresses, and keeps those with which it failed.
func (o *op) del(contexts []call.Context) error {
	var failed []call.Context
	var errs []error
	for _, c := range slices.Backward(contexts) {
		if err := o.plugin.Del(context.Background(), o.call(c)); err != nil {
			failed, errs = append(failed, c), append(errs, err)
		}
	}
	if len(failed) > 0 {
		slices.Reverse(failed)
		r := o.rec.Clone()
		r.Contexts = failed
		o.setRecord(r)
	}
	return errors.Join(errs...)
}

// call is a call with a context.
func (o *op) call(c call.Context) call.Call {
	return call.Call{ContainerID: c.ContainerID, Owner: o.owner, Pool: o.pool, Context: c, PrevResult: c.PrevResult}
}

// reserve enters the addresses of a result. If another attachment has one of
// them, the plugin has handed it out twice (step 6): ours is given back by the
// caller, the other one is verified.
func (o *op) reserve(today call.Context, res call.Result) error {
	o.mu.Lock()
	other := o.index.reserve(o.entry, today.Network, res.Addresses)
	if other != nil {
		o.counters.Duplicates++
		other.verified, other.checked = time.Time{}, false
	}
	o.mu.Unlock()
	if other == nil {
		return nil
	}
	err := &duplicate{other: other, error: fmt.Errorf("plugin %s returned %v, which %s (container ID %s) has already; it was given back",
		today.Plugin, addrs(res.Addresses), other.key, other.id)}
	o.log().WithError(err).Error("Duplicate address from the plugin")
	return err
}

// unreserve takes a result that could not be recorded out of the index again.
func (o *op) unreserve(res call.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.index.drop(o.entry, res.Addresses)
	o.index.enter(o.entry, o.rec.Network, o.rec.Result.Addresses)
}

// notWhatWasAsked is a successful ADD whose result cannot be used.
type notWhatWasAsked struct{ error }

// duplicate is a successful ADD whose result another attachment has.
type duplicate struct {
	error
	other *entry
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
	return errors.As(err, &e) && e.Outcome == call.Unclear
}

// lastContext is that of the last ADD.
func (o *op) lastContext() call.Context {
	if len(o.rec.Contexts) == 0 {
		return call.Context{}
	}
	return o.rec.Contexts[len(o.rec.Contexts)-1]
}

// addresses are those recorded; none if there is no record.
func (o *op) addresses() []netip.Addr {
	if o.rec == nil {
		return nil
	}
	return o.rec.Addrs()
}

// claimed are the addresses handed out and not taken back.
func (o *op) claimed() []netip.Addr {
	return slices.DeleteFunc(o.addresses(), func(ip netip.Addr) bool { return !o.rec.Claimed(record.FamilyOf(ip)) })
}

// wanted are the families of a request.
func (o *op) wanted(f record.Family) []record.Family {
	if f != "" {
		return []record.Family{f}
	}
	return slices.DeleteFunc([]record.Family{record.IPv4, record.IPv6}, func(f record.Family) bool { return !o.enabled(f) })
}
