package engine

import (
	"errors"
	"fmt"
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

// writeIfDirty writes an adding record before a DEL if the record on disk may be held. Until it is
// adding, the plugin must keep the addresses, or a restart would trust addresses that another owner has.
func (op *operation) writeIfDirty() error {
	if !op.entry.dirty {
		return nil
	}
	return op.write(op.entry.rec.Clone())
}

// setInvocations replaces the invocations of the record in memory.
func (op *operation) setInvocations(all []call.Invocation) {
	r := op.entry.rec.Clone()
	r.Invocations = all
	op.setRecord(r)
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
	r := op.entry.rec.Clone()
	// A generated owner never returns, so it needs no tombstone.
	tombstone := time.Now().Before(r.LateDel.Until) && !strings.HasPrefix(op.entry.owner, generatedOwnerPrefix)
	if tombstone {
		r.State, r.Result, r.Invocations = record.Tombstone, call.Result{}, nil
		if err := op.write(r); err != nil {
			return err
		}
	} else if err := op.remover()(op.entry.id); err != nil {
		op.entry.dirty = true
		return fmt.Errorf("%s: the record could not be removed; the removal is retried in the background: %w", op, err)
	}
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	if !tombstone {
		op.engine.index.remove(op.entry, r.Result.Addresses)
		op.engine.records.Delete(op.entry.key)
		op.entry.rec, op.entry.dirty = nil, false
	}
	op.entry.lost, op.entry.verified, op.entry.releaseAs = false, time.Time{}, ""
	op.entry.verifyDue.Store(false)
	return nil
}

// remover returns how the record is removed. A response does not wait for the removal to be durable if
// a power loss that brings the record back only repeats its DEL, and that DEL frees nothing else: what
// host-local allocates meanwhile is under another container ID, or under the same with a new record
// (docs/design/how-it-works.md, Release). A discarded one would not be released by the DEL.
func (op *operation) remover() func(containerID string) error {
	byAddress := func(inv call.Invocation) bool { return !inv.Profile.LikeHostLocal() }
	if op.action == ActionDiscard || slices.ContainsFunc(op.entry.rec.Invocations, byAddress) {
		return op.engine.journal.Remove
	}
	return op.engine.journal.RemoveSoon
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

// newOrClonedRecord returns a copy of the record, or a first one for an invocation.
func (op *operation) newOrClonedRecord(inv call.Invocation) record.Record {
	if op.entry.rec != nil {
		return op.entry.rec.Clone()
	}
	return record.Record{
		ContainerID: op.entry.id, Owner: op.entry.owner, Pool: op.entry.pool, Node: op.engine.opts.Node,
		Network: inv.Network, MachineID: op.engine.opts.MachineID, Created: time.Now(),
	}
}
