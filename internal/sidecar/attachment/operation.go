// Package attachment decides what is done with one attachment, so that no crash, failed write or late
// plugin process leaks an address or allocates it twice (docs/design/how-it-works.md). It has no
// clock, no I/O, no goroutine and no lock: an Operation reads and changes its World, and nothing else.
package attachment

import (
	"net/netip"
	"time"
)

// Operation is one piece of work on an attachment. One at a time works on it.
type Operation struct {
	Key
	Status
	World World
	Opts  *Options
	// User is Record.User of a new record.
	User int
	// Action is what is done, for events. The background finds it out.
	Action Action
	// Freed: the plugin has just freed all addresses of the attachment, which is lost.
	Freed bool
	// unconfirmed is the held record of an attachment that CHECK reported lost, until its DEL succeeds.
	unconfirmed *Record
	// previous is the attachment whose addresses the pod of this container had, reserved are those addresses.
	previous Key
	reserved []netip.Addr
	// looked: a lookup has shown that the plugin does not hold the attachment; of a container, none of its
	// addresses.
	looked bool
	// storeProven: the plugin's store had the result of an earlier ADD with the invocation that is repeated.
	storeProven bool
}

// publish makes a changed state visible.
func (op *Operation) publish() { op.World.Publish(op.Status) }

// setRecord replaces the record in memory.
func (op *Operation) setRecord(r Record) {
	op.Rec = &r
	op.publish()
}

// setLost notes that the plugin does not hold the attachment.
func (op *Operation) setLost(why error) {
	first := !op.Lost
	op.Lost, op.Verified = true, time.Time{}
	op.publish()
	if first {
		op.World.Note(Note{NoteLost, why})
	}
}

// setVerified notes that the plugin holds the attachment.
func (op *Operation) setVerified() {
	reacquired := op.Lost
	op.Lost, op.Verified = false, op.World.Now()
	op.publish()
	switch {
	case reacquired:
		op.World.Note(Note{Kind: NoteReacquired})
	case op.Action == Reacquire:
		op.World.Note(Note{Kind: NoteCompleted})
	}
}

// recentlyVerified reports whether the plugin confirmed the record within VerifyInterval.
func (op *Operation) recentlyVerified() bool {
	return !op.World.Doubted() && op.Rec.BootID == op.Opts.BootID && !op.Verified.IsZero() && op.World.Now().Sub(op.Verified) < op.Opts.VerifyInterval
}

// Finish notes how the work ended, and when it is retried. waited reports that it ended in a queue. A
// rejection by a rule, and a client that left the queue, are not failures of the attachment; but if it
// was found to be lost before, it must be reacquired. A request does not end the DELs of earlier
// container IDs, so their failures stay.
func (op *Operation) Finish(err error, client, waited bool, backoff func(failures int) time.Duration) {
	switch {
	case err == nil:
		if !client || op.Rec == nil || op.Rec.State != Held || len(op.OldIDs()) == 0 {
			op.Failures = 0
		}
	case (waited || IsRejection(err)) && !op.Lost:
	case !client || op.Failures == 0: // a client that repeats its request postpones nothing
		op.Failures++
		op.RetryAt = op.World.Now().Add(backoff(op.Failures))
	}
	op.publish()
}
