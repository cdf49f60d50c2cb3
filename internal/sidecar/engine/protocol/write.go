package protocol

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
func (op *Operation) write(r record.Record) error {
	if op.Rec == nil || r.State != op.Rec.State {
		r.Changed = op.World.Now()
	}
	if err := op.World.Write(r); err != nil {
		op.Dirty = true
		op.publish()
		err = fmt.Errorf("the journal could not be written: %w", err)
		if op.Rec == nil {
			return errors.Join(err, op.removeUnwritten(r))
		}
		return err
	}
	op.Dirty = false
	op.setRecord(r)
	return nil
}

// writeIfDirty writes an adding record before a DEL if the record on disk may be held. Until it is
// adding, the plugin must keep the addresses, or a restart would trust addresses that another owner has.
func (op *Operation) writeIfDirty() error {
	if !op.Dirty {
		return nil
	}
	return op.write(op.Rec.Clone())
}

// setInvocations replaces the invocations of the record in memory.
func (op *Operation) setInvocations(all []call.Invocation) {
	r := op.Rec.Clone()
	r.Invocations = all
	op.setRecord(r)
}

// removeRecord removes the record, or keeps the generation of the next container ID as a
// tombstone while a DEL may still act on an earlier one.
func (op *Operation) removeRecord() error {
	r := op.Rec.Clone()
	// A generated owner never returns, so it needs no tombstone.
	tombstone := op.World.Now().Before(r.LateDel.Until) && !strings.HasPrefix(op.Owner, GeneratedOwnerPrefix)
	if tombstone {
		r.State, r.Result, r.GivenUp, r.Invocations = record.Tombstone, call.Result{}, nil, nil
		if err := op.write(r); err != nil {
			return err
		}
	} else if err := op.remover()(op.ID); err != nil {
		op.Dirty = true
		op.publish()
		return fmt.Errorf("%s: the record could not be removed; the removal is retried in the background: %w", op, err)
	}
	if !tombstone {
		op.Rec, op.Dirty = nil, false
	}
	op.Lost, op.Verified, op.ReleaseAs = false, time.Time{}, ""
	op.publish()
	op.World.SetDoubted(false)
	return nil
}

// remover returns how the record is removed. A response does not wait for the removal to be durable if
// a power loss that brings the record back only repeats its DEL, and that DEL frees nothing else: what
// host-local allocates meanwhile is under another container ID, or under the same with a new record
// (docs/design/how-it-works.md, Release). A discarded one would not be released by the DEL.
func (op *Operation) remover() func(containerID string) error {
	byAddress := func(inv call.Invocation) bool { return !inv.Profile.LikeHostLocal() }
	if op.Action == Discard || slices.ContainsFunc(op.Rec.Invocations, byAddress) {
		return op.World.Remove
	}
	return op.World.RemoveSoon
}

// removeUnwritten removes a first record whose write failed but may have reached the disk. If
// that fails too, the record is kept in memory and reconciled in the background.
func (op *Operation) removeUnwritten(r record.Record) error {
	err := op.World.Remove(r.ContainerID)
	if err == nil {
		op.Dirty = false
		op.publish()
		return nil
	}
	op.setRecord(r)
	return err
}

// newOrClonedRecord returns a copy of the record, or a first one for an invocation.
func (op *Operation) newOrClonedRecord(inv call.Invocation) record.Record {
	if op.Rec != nil {
		return op.Rec.Clone()
	}
	return record.Record{
		ContainerID: op.ID, Owner: op.Owner, Pool: op.Pool, User: op.User, Node: op.Opts.Node,
		Network: inv.Network, MachineID: op.Opts.MachineID, Created: op.World.Now(), GivenUp: op.reserved,
	}
}
