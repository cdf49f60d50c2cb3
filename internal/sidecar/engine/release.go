package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// releaseAddress drops the claim of an address, and releases the attachment with the last
// claim: one DEL frees all families.
func (op *operation) releaseAddress(ip netip.Addr, skipDelay bool) error {
	// The address may have a new owner since the wait for the lock.
	if op.entry.rec == nil || !op.entry.rec.Holds(ip) {
		return notFoundError(op.entry.pool, ip)
	}
	if op.entry.rec.State == record.Releasing || op.entry.rec.State == record.Cooldown && skipDelay {
		return op.release()
	}
	if keepsExcluded(op.entry.owner) {
		return op.release() // no client has it, so nothing cools down
	}
	f := record.FamilyOf(ip)
	if !op.entry.rec.Claimed(f) {
		return notFoundError(op.entry.pool, ip)
	}
	r := op.entry.rec.Clone()
	r.Claims = slices.DeleteFunc(r.Claims, func(c record.Family) bool { return c == f })
	if len(r.Claims) > 0 {
		return op.write(r)
	}
	if skipDelay {
		return op.release()
	}
	return op.unclaim()
}

// unclaim drops every claim: the attachment enters cooldown, or is released.
func (op *operation) unclaim() error {
	if op.engine.opts.ReleaseDelay <= 0 || op.entry.rec.State != record.Held {
		return op.release()
	}
	r := op.entry.rec.Clone()
	r.State, r.Claims, r.Expiration = record.Cooldown, nil, nil
	r.ReleaseAt = time.Now().Add(op.engine.opts.ReleaseDelay)
	return op.write(r)
}

// release writes releasing, runs a DEL with every invocation and removes the record.
func (op *operation) release() error {
	if err := op.acquireProcess(); err != nil {
		return err
	}
	op.addConfigured()
	newest := slices.Clone(op.entry.rec.Invocations)
	slices.Reverse(newest)
	defer op.prestart(newest)()
	if err := op.writeReleasing(); err != nil {
		return fmt.Errorf("%s: %w; the plugin was not called", op, err)
	}
	addsEnded := op.addsEnded()
	if err := op.delAll(op.entry.rec.Invocations); err != nil {
		return fmt.Errorf("%s could not be released; the DEL is retried in the background: %w", op, err)
	}
	if !addsEnded {
		return nil // a last DEL follows when no ADD can act any more
	}
	return op.removeRecord()
}

// writeReleasing makes the state releasing durable, in this boot, because a DEL may act from
// then on.
func (op *operation) writeReleasing() error {
	if op.entry.rec.State == record.Releasing && !op.entry.dirty && op.entry.rec.BootID == op.engine.opts.BootID {
		return nil
	}
	r := op.entry.rec.Clone()
	r.State, r.Claims, r.Expiration, r.ReleaseAt, r.BootID = record.Releasing, nil, nil, time.Time{}, op.engine.opts.BootID
	return op.write(r)
}

// discard releases the attachment, or removes its record although a DEL failed.
func (op *operation) discard() ([]Leftover, error) {
	if op.entry.rec == nil || op.entry.rec.State == record.Tombstone {
		return nil, newError(NotFound, "%s has no attachment", op)
	}
	failed := op.release()
	if _, ok := errors.AsType[*call.Error](failed); !ok {
		return nil, failed
	}
	invocations, log := op.entry.rec.Invocations, op.outcomeLogger(op.addresses()).WithError(failed)
	if err := op.removeRecord(); err != nil {
		return nil, err
	}
	var left []Leftover
	for _, inv := range invocations {
		log.WithFields(logrus.Fields{fieldContainerID: inv.ContainerID, "interface": inv.IfName, "network": inv.Network, "plugin": inv.Plugin}).
			Warn("Discarded on request: the plugin may keep the addresses")
		left = append(left, Leftover{inv, op.engine.plugin.CommandLine(call.VerbDel, op.call(inv))})
	}
	return left, nil
}

// releaseLaterAfter makes later reconciliations release an attachment after the error of a release,
// unless its record is releasing. It returns err.
func (op *operation) releaseLaterAfter(err error) error {
	if err != nil && op.entry.rec != nil && op.entry.rec.State != record.Releasing {
		op.entry.releaseAs = ActionCleanup
	}
	return err
}
