package attachment

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// A DEL with an unknown outcome may act late. No ADD uses a container ID on which an earlier DEL
// may still act (docs/design/how-it-works.md, Identity).

// del runs one DEL. After an unknown outcome the next ADD uses another container ID.
func (op *Operation) del(inv call.Invocation) error {
	_, err := op.World.Call(call.VerbDel, inv)
	if err == nil && op.unconfirmed != nil && inv.ContainerID == op.unconfirmed.IDInUse() {
		op.unconfirmed = nil
		op.setLost(fmt.Errorf("plugin %s does not hold it", inv.Plugin))
	}
	if outcomeUnknown(err) {
		// Memory suffices until the next write: a start infers it from the state.
		r := op.Rec.Clone()
		markLateDel(&r, inv, op.World.Now())
		op.setRecord(r)
	}
	return err
}

// markLateDel records that a DEL whose process ended at the given time may still act, so that
// its container ID is not used again before then.
func markLateDel(r *Record, inv call.Invocation, ended time.Time) {
	until := inv.Profile.ActsUntil(ended)
	if inv.Profile.SingleUseIDs() || !until.After(ended) {
		return // the ID is never used again, or the DEL ended with its process
	}
	if inv.ContainerID == containerid.Generation(r.ContainerID, r.Generation) {
		r.Generation++
	}
	if until.After(r.LateDel.Until) {
		r.LateDel = LateDel{Until: until, Seconds: int(until.Sub(ended) / time.Second)}
	}
}

// delEach runs DEL with each invocation and drops the completed ones, except last, from the
// record in memory. The error joins the errors of the failed DELs. The disk keeps the longer list
// until the next write: a repeated DEL is harmless.
func (op *Operation) delEach(invocations []call.Invocation, last call.Invocation) error {
	var errs []error
	var kept []call.Invocation
	for _, inv := range invocations {
		began := op.World.Now() // an ADD that may act during the DEL may act after it
		err := op.del(inv)
		if err != nil {
			errs = append(errs, err)
			op.World.Note(Note{NoteDelFailed, err})
		}
		if err != nil || began.Before(inv.AddActsUntil) {
			kept = append(kept, inv)
		}
	}
	op.setInvocations(withLast(kept, last))
	return errors.Join(errs...)
}

// delOldIDs runs the DEL of oldIDs whose ADD cannot act any more.
func (op *Operation) delOldIDs() error {
	if op.Rec.State != Held {
		return nil
	}
	var done []call.Invocation
	var errs []error
	for _, inv := range op.OldIDs() {
		if op.World.Now().Before(inv.AddActsUntil) {
			continue
		}
		if err := op.World.Process(); err != nil {
			return err
		}
		if err := op.del(inv); err != nil {
			errs = append(errs, err)
		} else {
			done = append(done, inv)
		}
	}
	if len(done) > 0 {
		r := op.Rec.Clone()
		r.Invocations = slices.DeleteFunc(r.Invocations, func(inv call.Invocation) bool { return slices.ContainsFunc(done, inv.Equal) })
		errs = append(errs, op.write(r))
	}
	return errors.Join(errs...)
}

// delAll runs DEL with each invocation, newest first, because that one holds the addresses. The
// record keeps them all: the caller removes it as a whole. If the plugin refused the ADDs and the DEL
// of an invocation, the DEL of another one of the same attachment suffices.
func (op *Operation) delAll(invocations []call.Invocation) error {
	errs := make([]error, len(invocations))
	var done []call.Invocation
	for i, inv := range slices.Backward(invocations) {
		if errs[i] = op.del(inv); errs[i] == nil {
			done = append(done, inv)
		}
	}
	for i, inv := range invocations {
		if inv.AddRefused && isRefused(errs[i]) && slices.ContainsFunc(done, inv.SameAttachment) {
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}
