package attachment

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Leases that are acquired ahead for containers: doc.go; for operators, docs/operate/warm-leases.md.

// Acquire acquires a lease ahead.
func (op *Operation) Acquire() error {
	if op.Rec != nil {
		return nil
	}
	return op.hold(Want{})
}

// WarmLimit is how many leases are kept at most for a number that is wanted. One more of four lets pods come and go in
// any order without a call of the plugin.
func WarmLimit(wanted int) int { return wanted + (wanted+3)/4 }

// spare reports whether the attachment is a lease that was acquired ahead, and that is not in use.
func (op *Operation) spare() bool { return IsWarm(op.Owner) && op.Rec.State == Held }

// unsure reports whether the plugin may not hold the attachment, or the disk not have the record.
func (op *Operation) unsure() bool {
	return op.Dirty || op.Lost || op.VerifyDue || op.Failures > 0
}

// Take ends this attachment for another one that takes over its record r, and reports whether it did. What is not known
// to be held is not handed over.
func (op *Operation) Take(r *Record) bool {
	if op.Rec != r || op.unsure() || !op.spare() && r.State != Cooldown {
		return false
	}
	op.Status = Status{ID: op.ID}
	op.publish()
	return true
}

// Give makes r, which is on disk, the record of this attachment.
func (op *Operation) Give(r *Record) bool {
	if op.Rec != nil {
		return false
	}
	op.Status = Status{ID: r.ContainerID, Rec: r}
	op.publish()
	return true
}

// takeWarm gives a new container a lease that was acquired ahead, or the one that its pod had last, and reports whether
// it did. Where another address of the pod is kept, that is acquired again.
func (op *Operation) takeWarm(w Want) (taken bool, err error) {
	if op.Rec != nil || len(w.OfRuntime) > 0 {
		return false, nil
	}
	spare, ready := op.World.Spare(), func(o Other) bool { return IsWarm(o.Owner) || o.Record.Lent != nil }
	if !slices.ContainsFunc(spare, ready) {
		return false, nil
	}
	inv, _, err := op.newInvocation(call.VerbAdd)
	if err != nil || inv.Profile.DependsOnPod() {
		return false, err
	}
	ofPod := func(o Other) bool { return o.Record.State == Cooldown && keptFor(o.Record, inv) }
	for i, o := range slices.Backward(spare) { // the youngest, as takeOver
		if ofPod(o) {
			spare = spare[i : i+1]
			break
		}
	}
	for _, o := range spare {
		if !ready(o) || !IsWarm(o.Owner) && !ofPod(o) || !op.allowed(o.Record, inv) {
			continue
		}
		held, err := op.held(o.Record)
		switch {
		case err == nil && !held && IsWarm(o.Owner): // what is kept for the pod is acquired again
			op.World.Settle(o, EndCooldown, false)
		case err == nil && held && op.take(o):
			return true, op.handOver(w)
		}
	}
	return false, nil
}

// allowed reports whether an ADD with an invocation could return what a record has.
func (op *Operation) allowed(r *Record, inv call.Invocation) bool {
	not := func(ip netip.Addr) bool { return op.outside(ip) || op.Opts.Excludes(ip) }
	return r.last().SameResult(inv) && !slices.ContainsFunc(r.Addrs(), not)
}

// held reports whether the plugin's store has a spare lease; true for a store that cannot be read.
func (op *Operation) held(r *Record) (bool, error) {
	if !r.last().StoreProven {
		return true, nil
	}
	return op.World.Holds(r.last(), r.Addrs())
}

// take ends another attachment and makes its lease that of the container, and reports whether it could. Readers find the
// lease at every moment, as the plugin's GC must: under both owners before it is under one.
func (op *Operation) take(from Other) bool {
	before, r := op.Status, from.Record.Clone()
	lent := Lent{Warm: from.Owner, Container: *op.Container}
	if r.Lent != nil {
		lent.Warm = r.Lent.Warm
	}
	lent.Container.RuntimeConfig, lent.Container.CNIArgs = nil, nil
	r.Owner, r.Lent, r.Created, r.Changed, r.BootID = op.Owner, &lent, op.World.Now(), op.World.Now(), op.Opts.BootID
	r.State, r.ReleaseAt = Held, time.Time{}
	op.Dirty, op.Instead = true, from.Owner
	op.setRecord(r)
	taken := op.World.Settle(from, Taken, false)
	if !taken {
		op.Status = before
		op.publish()
	}
	return taken
}

// handOver writes the taken lease for the container. If it cannot, either may be on disk, and the background releases it.
func (op *Operation) handOver(w Want) error {
	err := op.grant(w)
	if err == nil {
		op.setVerified()
		op.World.Report(Event{Kind: EventHandedOver})
	}
	return op.finishLater(err)
}

// renewLent records what the runtime passes in a repeated ADD.
func (op *Operation) renewLent() error {
	r := op.Rec.Clone()
	lent := *r.Lent
	if lent.Container.NetNS != op.Container.NetNS {
		r.Created = op.World.Now() // who has seen the earlier sandbox end has not seen this one
	}
	lent.Container.NetNS, lent.Container.Args = op.Container.NetNS, op.Container.Args
	if lent.Container.NetNS == r.Lent.Container.NetNS && lent.Container.Args == r.Lent.Container.Args {
		return nil
	}
	r.Lent = &lent
	return op.write(r)
}

// returnLease makes the lease of a container that has ended one that is ready for the next, or releases it in the
// background, because there are enough, it is not known to be held, or the configuration has changed.
func (op *Operation) returnLease() error {
	if op.unsure() || !isHeld(op.Rec.State) || !op.wanted() {
		return op.writeReleasing()
	}
	r := op.Rec.Clone()
	r.Owner, r.Lent, r.State = r.Lent.Warm, nil, Held
	r.Claims, r.GivenUp, r.ReleaseAt = nil, nil, time.Time{}
	r.Created, r.Changed = op.World.Now(), op.World.Now()
	if err := op.World.Write(r, op.Owner); err != nil {
		op.Dirty, op.Instead = true, r.Owner
		op.publish()
		return fmt.Errorf("%s: the journal could not be written: %w", op, err)
	}
	op.World.Settle(Other{Key: Key{op.Pool, r.Owner}, Record: &r}, Given, true)
	op.Status = Status{ID: op.ID}
	op.publish()
	return nil
}

// wanted reports whether the lease is one to keep for containers that come: with the present configuration it would be
// acquired again, and there are not enough others.
func (op *Operation) wanted() bool {
	last := op.LastInvocation()
	n, err := op.World.Network()
	if err != nil || !n.ServesContainers {
		return false
	}
	today, err := op.World.Invocation(call.VerbDel, n, last.ContainerID, nil)
	if err != nil || today.Profile.DependsOnPod() || !op.allowed(op.Rec, today) {
		return false
	}
	others := 0
	for _, o := range op.World.Spare() {
		if IsWarm(o.Owner) {
			others++
		}
	}
	return others < WarmLimit(op.Opts.WarmLeases)
}

// settleKept verifies a lease that was acquired ahead and is kept for the pod of a container that has ended: no ADD of the
// plugin will. One that only an ADD verifies is released.
func (op *Operation) settleKept(freed bool) error {
	if err := op.writeIfDirty(); err != nil || op.Rec.Lent == nil || !op.VerifyDue {
		return err
	}
	if op.LastInvocation().VerifyBy() == profile.VerifyAdd {
		return op.writeReleasing()
	}
	found, err := op.verifyUnlessFreed(freed)
	if err == nil && found == reported { // no container uses it, so no DEL has to confirm that
		op.setLost(fmt.Errorf("plugin %s does not hold it", op.LastInvocation().Plugin))
	}
	return err
}

// settleWarm verifies a lease that was acquired ahead, and releases one that is lost, or not wanted any more.
func (op *Operation) settleWarm(freed bool) error {
	if _, err := op.World.Network(); err != nil && op.Opts.WarmLeases > 0 {
		return nil // it may come back
	}
	if op.wanted() && !freed {
		if !op.VerifyDue && op.Failures == 0 {
			return nil
		}
		if found, err := op.verify(); err != nil || found == stillHeld {
			return err
		}
	}
	op.Action = Cleanup
	return op.free()
}
