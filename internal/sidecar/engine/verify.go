package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// verify reports whether the plugin still holds the recorded addresses, by the method of the
// profile. An error means that this is unknown: a failed check is not evidence of loss, so
// the attachment is not given up then.
func (op *operation) verify() (held bool, err error) {
	if op.recentlyVerified() {
		return true, nil
	}
	if op.entry.verifyDue.Swap(false) { // a duplicate that is found from now on requires another one
		defer func() {
			// A lost attachment is retried. One that must be acquired anew may wait for a process in vain.
			if err != nil || !held && !op.entry.lost {
				op.entry.verifyDue.Store(true)
			}
		}()
	}
	inv := op.lastInvocation()
	if op.idInUseByDel(inv) && time.Now().Before(op.entry.rec.LateDel.Until) {
		return false, fmt.Errorf("%s: a DEL of %v without an answer may still act; try again after %s", op, op.addresses(), op.entry.rec.LateDel.Until.Format(time.RFC3339))
	}
	held, known := op.verifyByLookup(inv)
	if !known {
		if op.engine.hasOlder(op.entry) {
			op.setLost(errors.New("an older attachment has the same address"))
			return false, nil
		}
		acquireAnew := op.mayHaveLostWrites(inv) && canRequest(inv, op.claimedAddresses())
		_, networkErr := op.engine.plugin.Network(op.entry.pool)
		if acquireAnew && networkErr == nil {
			return false, nil
		}
		if err := op.acquireProcess(); err != nil {
			return false, err
		}
		if held, err = op.verifyByPlugin(inv); held && acquireAnew {
			err = networkErr // the plugin can only prove a loss
		}
		if err != nil {
			return false, fmt.Errorf("%s: the plugin could not verify %v: %w", op, op.addresses(), err)
		}
	}
	if !held {
		if op.unconfirmed == nil { // otherwise the DEL must confirm that
			op.setLost(fmt.Errorf("plugin %s does not hold it", inv.Plugin))
		}
		return false, nil
	}
	op.setVerified()
	if op.entry.rec.BootID != op.engine.opts.BootID || op.entry.dirty {
		r := op.entry.rec.Clone()
		r.BootID = op.engine.opts.BootID
		return true, op.write(r)
	}
	return true, nil
}

// verifyByLookup reads from the plugin's store whether it holds the recorded addresses. known
// is false if lookups do not work; the plugin is queried then.
func (op *operation) verifyByLookup(inv call.Invocation) (holds, known bool) {
	if !inv.StoreProven {
		return false, false
	}
	holds, err := op.engine.plugin.Holds(inv, op.addresses())
	if err != nil {
		op.log().WithError(err).Debug("Lookup in the plugin's store failed; the plugin is queried")
	}
	return holds, err == nil
}

// verifyByPlugin verifies the attachment by CHECK or ADD, as the profile says.
func (op *operation) verifyByPlugin(inv call.Invocation) (bool, error) {
	switch inv.VerifyBy() {
	case profile.VerifyNothing:
		return true, nil
	case profile.VerifyAdd:
		res, err := op.engine.plugin.Add(op.callCtx(), op.call(inv))
		if outcomeUnknown(err) {
			// It may still allocate, so a DEL must follow.
			inv.AddActsUntil = inv.Profile.ActsUntil(time.Now())
			op.setInvocations(withLast(op.entry.rec.Invocations, inv))
			return false, errors.Join(err, op.write(op.entry.rec.Clone()))
		}
		if err != nil {
			return false, err
		}
		if sameAddresses(res.Addresses, op.entry.rec.Result.Addresses) {
			return true, nil
		}
		// This ADD allocated other addresses. They are released like the result of any ADD that
		// returns something else: with its DEL, deadline and generation.
		r := op.entry.rec.Clone()
		r.State = record.Adding
		return false, op.write(r)
	default:
		err := op.engine.plugin.Check(op.callCtx(), op.call(inv))
		if call.IsLost(inv, err) {
			if !inv.Profile.SingleUseIDs() { // otherwise a DEL confirms nothing
				op.unconfirmed = op.entry.rec
			}
			return false, nil
		}
		return err == nil, err
	}
}

// mayHaveLostWrites reports whether the plugin may have lost its last writes in a reboot, so
// that a check that compares no address could confirm a different one.
func (op *operation) mayHaveLostWrites(inv call.Invocation) bool {
	return op.entry.rec.BootID != op.engine.opts.BootID && inv.Profile.OnNode() && inv.Profile.CheckProves != profile.ProvesAddress
}

// Held attachments are looked up in the background, so that a lease that was deleted behind the sidecar
// is found without a request of its owner. Only what a lookup can read is checked: it reads a file for
// each address, while a CHECK runs a process.
const (
	// lookupInterval is the time between two rounds, plus up to a quarter.
	lookupInterval = 5 * time.Minute
	// lookupPause is the time between two pages of a round.
	lookupPause = time.Second
)

// lookUpRounds looks up the held attachments, a page at a time, until Stop.
func (e *Engine) lookUpRounds() {
	for e.wait(lookupInterval + rand.N(lookupInterval/4)) {
		for last, more := (key{}), true; more; more = more && e.wait(lookupPause) {
			held := map[*entry]*record.Record{}
			last, more = e.page(last, func(a *entry) {
				if a.rec.State == record.Held && !a.lost && a.failures == 0 {
					held[a] = a.rec
				}
			})
			for a, r := range held {
				e.lookUp(a, r)
			}
		}
	}
}

// wait waits for a duration, and reports whether the engine runs.
func (e *Engine) wait(d time.Duration) bool {
	select {
	case <-e.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// lookUp causes a verification if the plugin's store lacks an address of a record.
func (e *Engine) lookUp(a *entry, r *record.Record) {
	inv := r.Invocations[len(r.Invocations)-1]
	if !inv.StoreProven {
		return
	}
	if held, err := e.plugin.Holds(inv, r.Addrs()); held || err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.rec == r { // not changed meanwhile
		a.verifyDue.Store(true)
		a.shared.workqueue.add(a)
	}
}
