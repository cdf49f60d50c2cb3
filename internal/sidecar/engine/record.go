package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// write makes a record durable and then sets the one in memory. After an error the disk may
// have either, so memory is not trusted before a write has succeeded.
func (op *operation) write(r record.Record) error {
	if op.entry.rec == nil || r.State != op.entry.rec.State {
		r.Changed = time.Now()
	}
	if err := op.engine.journal.Write(r); err != nil {
		op.entry.dirty = true
		err = fmt.Errorf("the journal could not be written: %w", err)
		if op.entry.rec == nil {
			return errors.Join(err, op.removeUnwritten(r))
		}
		return err
	}
	op.entry.dirty = false
	op.setRecord(r)
	return nil
}

// setRecord replaces the record in memory and its addresses in the index.
func (op *operation) setRecord(r record.Record) {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	if op.entry.rec != nil {
		op.engine.index.remove(op.entry, op.entry.rec.Result.Addresses)
	}
	op.engine.index.add(op.entry, r.Network, r.Result.Addresses)
	op.entry.rec = &r
	op.engine.records.Store(op.entry.key, &r)
}

// removeRecord removes the record, or keeps the generation of the next container ID as a
// tombstone while a DEL may still act on an earlier one.
func (op *operation) removeRecord() error {
	// A generated owner never returns, so it needs no tombstone.
	if time.Now().Before(op.entry.rec.LateDel.Until) && !strings.HasPrefix(op.entry.owner, generatedOwnerPrefix) {
		r := op.entry.rec.Clone()
		r.State, r.Result, r.Invocations = record.Tombstone, call.Result{}, nil
		err := op.write(r)
		if err == nil {
			op.resetState()
		}
		return err
	}
	if err := op.engine.journal.Remove(op.entry.id); err != nil {
		op.entry.dirty = true
		return fmt.Errorf("%s: the record could not be removed; the removal is retried in the background: %w", op, err)
	}
	op.entry.dirty = false
	op.engine.mu.Lock()
	op.engine.index.remove(op.entry, op.entry.rec.Result.Addresses)
	op.entry.rec = nil
	op.engine.records.Delete(op.entry.key)
	op.engine.mu.Unlock()
	op.resetState()
	return nil
}

// resetState clears the state in memory of an attachment that was removed.
func (op *operation) resetState() {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	op.entry.lost, op.entry.conflict, op.entry.doubted, op.entry.verified, op.entry.releaseAs = false, false, false, time.Time{}, ""
}

// removeUnwritten removes a first record whose write failed but may have reached the disk. If
// that fails too, the record is kept in memory and reconciled in the background.
func (op *operation) removeUnwritten(r record.Record) error {
	err := op.engine.journal.Remove(r.ContainerID)
	if err == nil {
		op.entry.dirty = false
		return nil
	}
	op.setRecord(r)
	return err
}

// reserve adds the addresses of a result to the index. If another attachment has one of them,
// the plugin allocated it twice (step 6): the caller releases ours, and the other attachment
// is verified.
func (op *operation) reserve(inv call.Invocation, res call.Result) error {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	other, taken := op.engine.index.reserve(op.entry, inv.Network, res.Addresses)
	switch {
	case other == nil:
		return nil
	case !inv.Profile.Unique:
		return &unusableResult{fmt.Errorf("plugin %s returns the same addresses %v for every attachment, and %s (container ID %s) has them; ours was released: configure a separate network, or request another address",
			inv.Plugin, addrs(res.Addresses), other.key, other.idInUse())}
	}
	op.engine.count(func(c *Counters) { c.Duplicates++ })
	err := op.newDuplicateError(inv, res, other, taken)
	op.log().WithError(err).Error("Duplicate address from the plugin")
	if err.verify {
		other.doubted = true
	}
	return err
}

// unreserve removes a result that could not be recorded from the index.
func (op *operation) unreserve(res call.Result) {
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	op.engine.index.remove(op.entry, res.Addresses)
	if op.entry.rec != nil {
		op.engine.index.add(op.entry, op.entry.rec.Network, op.entry.rec.Result.Addresses)
	}
}

// call returns a call with an invocation.
func (op *operation) call(c call.Invocation) call.Call {
	return call.Call{
		ContainerID: c.ContainerID, Owner: op.entry.owner, Pool: op.entry.pool,
		Invocation: c, Requested: c.Requested, PrevResult: c.PrevResult,
	}
}

// lastInvocation returns the invocation of the last ADD.
func (op *operation) lastInvocation() call.Invocation {
	if len(op.entry.rec.Invocations) == 0 {
		return call.Invocation{}
	}
	return op.entry.rec.Invocations[len(op.entry.rec.Invocations)-1]
}

// idInUse returns the container ID of the last ADD, which differs from that of generation 0 where a
// DEL may still act on that; empty until one is needed.
func (a *entry) idInUse() string {
	if a.rec != nil {
		return a.rec.IDInUse()
	}
	return a.id
}

// addresses returns the recorded addresses; none without a record.
func (op *operation) addresses() []netip.Addr { return op.entry.rec.Addrs() }

// withLast puts an invocation at the end of a list, replacing an equal one.
func withLast(contexts []call.Invocation, last call.Invocation) []call.Invocation {
	return append(slices.DeleteFunc(slices.Clone(contexts), last.Equal), last)
}

// addsEnded reports whether no ADD of the record may still act. It must be evaluated before the
// DEL that is to be the last: an ADD that acts during that DEL may act after it.
func (op *operation) addsEnded() bool { return !time.Now().Before(op.addActsUntil()) }

// addActsUntil returns the last moment at which an ADD of the record may act; zero for none.
func (op *operation) addActsUntil() time.Time {
	var last time.Time
	for _, c := range op.entry.rec.Invocations {
		if c.AddActsUntil.After(last) {
			last = c.AddActsUntil
		}
	}
	return last
}
