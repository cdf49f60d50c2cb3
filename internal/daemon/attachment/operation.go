package attachment

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Operation is one piece of work on an attachment. One at a time works on it.
type Operation struct {
	Key
	Status
	World World
	Opts  *Options
	// User is Record.User of a new record.
	User int
	// Container are the parameters with which the runtime of a container interface calls now; nil if it does not.
	Container *call.Container
	// Action is what is done, for events. The background finds it out.
	Action Action
}

// publish makes a changed status visible.
func (op *Operation) publish() { op.World.Publish(op.Status) }

// setRecord replaces the record in memory.
func (op *Operation) setRecord(r Record) {
	op.Rec = &r
	op.publish()
}

// setInvocations replaces the invocations of the record in memory.
func (op *Operation) setInvocations(all []call.Invocation) {
	r := op.Rec.Clone()
	r.Invocations = all
	op.setRecord(r)
}

// setLost notes that the plugin does not hold the attachment.
func (op *Operation) setLost(why error) {
	first := !op.Lost
	op.Lost, op.VerifyDue, op.Verified = true, false, time.Time{}
	op.publish()
	if first {
		op.World.Report(Event{EventLost, why})
	}
}

// setVerified notes that the plugin holds the attachment, but for what it keeps under another ID.
func (op *Operation) setVerified() {
	lost := op.Rec.lostInPart()
	reacquired := op.Lost && !lost
	op.Lost, op.VerifyDue, op.Verified = lost, false, op.World.Now()
	op.publish()
	switch {
	case reacquired:
		op.World.Report(Event{Kind: EventReacquired})
	case op.Action == Reacquire:
		op.World.Report(Event{Kind: EventCompleted})
	}
}

// recentlyVerified reports whether the plugin confirmed the record within VerifyInterval.
func (op *Operation) recentlyVerified() bool {
	return !op.VerifyDue && op.Rec.BootID == op.Opts.BootID && !op.Verified.IsZero() && op.World.Now().Sub(op.Verified) < op.Opts.VerifyInterval
}

// write makes a record durable and then sets the one in memory. After an error the disk may
// have either, so memory is not trusted before a write has succeeded.
func (op *Operation) write(r Record) error {
	if op.Rec == nil || r.State != op.Rec.State {
		r.Changed = op.World.Now()
	}
	if err := op.World.Write(r, op.owners()[1:]...); err != nil {
		op.Dirty = true
		op.publish()
		err = fmt.Errorf("the journal could not be written: %w", err)
		if op.Rec == nil {
			return errors.Join(err, op.removeUnwritten(r))
		}
		return err
	}
	op.Dirty, op.Instead = false, ""
	op.setRecord(r)
	return nil
}

// writeIfDirty writes the record again if the disk may have an older one. An adding one must precede a DEL: while the
// disk has held, the plugin must keep the addresses, or a restart would trust those that another owner has.
func (op *Operation) writeIfDirty() error {
	if !op.Dirty {
		return nil
	}
	return op.write(op.Rec.Clone())
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
	} else if err := op.World.Remove(op.Pool, op.owners()...); err != nil {
		op.Dirty = true
		op.publish()
		return fmt.Errorf("%s: the record could not be removed; the removal is retried in the background: %w", op, err)
	}
	if !tombstone {
		op.Rec, op.Dirty, op.Instead = nil, false, ""
	}
	op.Lost, op.VerifyDue, op.Verified, op.ReleaseAs = false, false, time.Time{}, ""
	op.publish()
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

// owners are the owners under which the disk may have the record.
func (op *Operation) owners() []string {
	if op.Instead == "" {
		return []string{op.Owner}
	}
	return []string{op.Owner, op.Instead}
}

// newOrClonedRecord returns a copy of the record, or a first one for an invocation.
func (op *Operation) newOrClonedRecord(inv call.Invocation) Record {
	if op.Rec != nil {
		return op.Rec.Clone()
	}
	return Record{
		ContainerID: op.ID, Owner: op.Owner, Pool: op.Pool, User: op.User, Node: op.Opts.Node,
		Network: inv.Network, Created: op.World.Now(),
	}
}

// Finish notes how the work ended, and when it is retried. waited reports that it ended in a queue. The
// rejection of a request by a rule, and a client that left the queue, are not failures of the attachment;
// but if it was found to be lost before, it must be reacquired. A request does not end the DELs of earlier
// container IDs, so their failures stay.
func (op *Operation) Finish(err error, client, waited bool, backoff func(failures int) time.Duration) {
	switch {
	case err == nil:
		if !client || op.Rec == nil || op.Rec.State != Held || len(op.OldIDs()) == 0 {
			op.Failures = 0
		}
	case client && (waited || IsRejection(err)) && !op.Lost:
	case !client || op.Failures == 0: // a client that repeats its request postpones nothing
		op.Failures++
		op.RetryAt = op.World.Now().Add(backoff(op.Failures))
	}
	op.publish()
}
