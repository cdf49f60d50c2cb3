package attachment

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// write makes a record durable and then sets the one in memory. After an error the disk may
// have either, so memory is not trusted before a write has succeeded.
func (op *Operation) write(r Record) error {
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
		r.State, r.Result, r.GivenUp, r.Invocations = Tombstone, call.Result{}, nil, nil
		if err := op.write(r); err != nil {
			return err
		}
	} else if err := op.World.Remove(op.Pool, op.Owner); err != nil {
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

// removeUnwritten removes a first record whose write failed but may have reached the disk. If
// that fails too, the record is kept in memory and reconciled in the background.
func (op *Operation) removeUnwritten(r Record) error {
	err := op.World.Remove(r.Pool, r.Owner)
	if err == nil {
		op.Dirty = false
		op.publish()
		return nil
	}
	op.setRecord(r)
	return err
}

// newOrClonedRecord returns a copy of the record, or a first one for an invocation.
func (op *Operation) newOrClonedRecord(inv call.Invocation) Record {
	if op.Rec != nil {
		return op.Rec.Clone()
	}
	return Record{
		ContainerID: op.ID, Owner: op.Owner, Pool: op.Pool, User: op.User, Node: op.Opts.Node,
		Network: inv.Network, Created: op.World.Now(), GivenUp: op.reserved,
	}
}
