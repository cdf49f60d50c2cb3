package attachment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/identity"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// This file is the protocol: what an attachment goes through from one state to
// the next, by whoever holds its turn.
//
//	(none) --allocate--> adding --ADD--> held --release--> releasing --DEL--> (none)
//	                       ^              | ^                 ^
//	                       +--- lost -----+ +--- cooling -----+
//
// Every step that changes the plugin's state is in the journal before it.

// allocate answers from what is held, or acquires it.
func (o *op) allocate(f record.Family, expire bool) error {
	return o.keepOrAcquire(goal{prefer: o.addresses(), families: o.wanted(f), any: f == "", expire: expire})
}

// keepOrAcquire hands out what is held and stands; everything else is acquired.
func (o *op) keepOrAcquire(want goal) error {
	if o.rec != nil && (o.rec.State == record.Held || o.rec.State == record.Cooling) {
		stands, err := o.stands()
		if err != nil {
			return err
		}
		if stands {
			return o.grant(want)
		}
	}
	return o.acquire(want)
}

// restore makes exactly this address the owner's.
func (o *op) restore(ip netip.Addr) error {
	f := record.FamilyOf(ip)
	if other, id, ok := o.holder(o.pool, ip); ok && other != o.key {
		return fail(Exists, "address %s belongs to %s (container ID %s)", ip, other, id)
	}
	want := goal{must: []netip.Addr{ip}, families: []record.Family{f}}
	if have := o.addresses(); len(have) > 0 && o.rec.State != record.Releasing {
		if !slices.Contains(have, ip) {
			return fail(Failed, "%s (container ID %s) holds %v, not %s; release those first, or allocate to be told what is held", o.key, o.id, have, ip)
		}
		want.prefer = have
	}
	return o.keepOrAcquire(want)
}

// release takes the claim of an address back, and gives the attachment back
// when no claim is left: one DEL frees all families.
func (o *op) release(ip netip.Addr) error {
	// Look again: it may have changed hands while we waited for our turn.
	if o.rec == nil || !o.rec.Holds(ip) {
		return notHeld(o.pool, ip)
	}
	if o.rec.State == record.Releasing {
		return o.giveBack()
	}
	f := record.FamilyOf(ip)
	if !o.rec.Claimed(f) {
		return notHeld(o.pool, ip)
	}
	r := o.rec.Clone()
	r.Claims = slices.DeleteFunc(r.Claims, func(c record.Family) bool { return c == f })
	if len(r.Claims) > 0 {
		return o.write(r)
	}
	return o.letGo()
}

// letGo drops every claim: the attachment cools, or is given back at once.
func (o *op) letGo() error {
	if o.ReleaseDelay <= 0 || o.rec.State != record.Held {
		return o.giveBack()
	}
	r := o.rec.Clone()
	r.State, r.Claims, r.Expiration = record.Cooling, nil, nil
	r.ReleaseAt = time.Now().Add(o.ReleaseDelay)
	return o.write(r)
}

// stands asks, as the profile says, whether what is recorded still stands. An
// error is "could not ask": nothing may be concluded from it, because a live
// address is never given up because a question failed.
func (o *op) stands() (bool, error) {
	c := o.lastContext()
	sameBoot := o.rec.BootID == o.BootID
	if last := o.lastVerified(); sameBoot && !last.IsZero() && time.Since(last) < o.VerifyInterval {
		return true, nil
	}
	// After a reboot the plugin may have lost its last writes, and its presence
	// test would say yes to another address.
	if !sameBoot && c.Profile.CheckProves == profile.ProvesPresence && canAskFor(c, o.claimed()) {
		return false, nil
	}
	if err := o.begin(); err != nil {
		return false, err
	}
	ok, err := o.ask(c)
	if err != nil {
		return false, fmt.Errorf("%s (container ID %s): could not ask the plugin whether %v still stand, so nothing was changed: %w",
			o.key, o.id, o.addresses(), err)
	}
	if !ok {
		o.setLost(fmt.Errorf("plugin %s says that it does not hold it", c.Plugin))
		return false, nil
	}
	o.setVerified()
	if !sameBoot {
		r := o.rec.Clone()
		r.BootID = o.BootID
		return true, o.write(r)
	}
	return true, nil
}

// ask puts the question of the profile to the plugin.
func (o *op) ask(c call.Context) (bool, error) {
	switch c.Profile.VerifyBy {
	case profile.VerifyNothing:
		return true, nil
	case profile.VerifyAdd:
		res, err := o.plugin.Add(context.Background(), o.call(c))
		if err != nil {
			return false, err
		}
		if sameAddresses(res.Addresses, o.rec.Result.Addresses) {
			return true, nil
		}
		// The question itself allocated: what it got is not ours to keep.
		return false, o.plugin.Del(context.Background(), o.call(c))
	default:
		if !c.HasCheck() {
			return true, nil
		}
		err := o.plugin.Check(context.Background(), o.call(c))
		if call.Lost(c, err) {
			return false, nil
		}
		return err == nil, err
	}
}

// acquire makes the attachment held: write the intention, DEL, ADD, reserve,
// write what was got. Steps are numbered as in DESIGN.md section 5.
func (o *op) acquire(want goal) error {
	if err := o.begin(); err != nil {
		return err
	}
	today, old, err := o.today()
	if err != nil {
		return err
	}
	if err := o.intend(today); err != nil { // step 3
		return fmt.Errorf("%s (container ID %s): %w; nothing was asked of the plugin", o.key, o.id, err)
	}
	clear := o.clear(old, today) // step 4: go on even if it fails
	for requests := want.requests(today); len(requests) > 0; {
		err = o.add(today, requests[0], want)
		if err == nil || !worthAnotherTry(err) {
			break
		}
		if clear { // else what was left may have stood in the way: ask the same again
			requests = requests[1:]
		}
		if len(requests) > 0 {
			if clear = o.clear(o.rec.Contexts, today); !clear {
				break // what a try may have left must be gone before the next
			}
		}
	}
	if err == nil {
		return nil
	}
	undone := o.undo(today, err)
	var d *duplicate
	if errors.As(err, &d) {
		o.errands.add(d.other) // verify it, now that ours is given back
	}
	return undone
}

// add runs one ADD and makes its result the record: steps 5 to 7.
func (o *op) add(today call.Context, request []netip.Addr, want goal) error {
	c := o.call(today)
	c.Requested = request
	res, err := o.plugin.Add(context.Background(), c) // step 5
	if err != nil {
		return err
	}
	families, err := want.accepts(res)
	if err != nil {
		return &notWhatWasAsked{err}
	}
	if err := o.reserve(today, res); err != nil { // step 6
		return err
	}
	if err := o.hold(today, res, families, want.expire); err != nil { // step 7
		o.unreserve(res)
		return err
	}
	return nil
}

// undo gives back what a failed acquisition may have allocated, and says why it
// failed. The record stays adding until a DEL has succeeded after the last
// moment at which the plugin can still act; then it goes, unless it was handed
// out before: that must be healed.
func (o *op) undo(today call.Context, cause error) error {
	r := o.rec.Clone()
	if mayStillAct(cause) {
		r.SettlesAt = time.Now().Add(today.Profile.AddOutlives())
	}
	o.setRecord(r)
	cause = fmt.Errorf("%s (container ID %s): %w", o.key, o.id, cause)
	if o.unsure {
		// The disk may say held. Until it says adding again, the plugin must keep
		// the addresses, or a restart would believe in what another has got.
		if err := o.write(r); err != nil {
			return cause
		}
	}
	gone := o.clear(r.Contexts, today)
	switch {
	case len(r.Claims) > 0:
		o.setLost(cause)
		return cause
	case !gone:
		return fmt.Errorf("%w; a DEL has not succeeded yet and is tried again in the background", cause)
	case time.Now().Before(o.rec.SettlesAt):
		// What is only in memory is derived again at start, where every
		// adding record is taken for one whose ADD may still act.
		return cause
	default:
		return errors.Join(cause, o.forget())
	}
}

// giveBack writes releasing, runs a DEL with every context and removes the record.
func (o *op) giveBack() error {
	if err := o.begin(); err != nil {
		return err
	}
	if o.rec.State != record.Releasing || o.unsure {
		r := o.rec.Clone()
		r.State, r.Claims, r.Expiration, r.ReleaseAt = record.Releasing, nil, nil, time.Time{}
		if err := o.write(r); err != nil {
			return fmt.Errorf("%s (container ID %s): %w; nothing was asked of the plugin", o.key, o.id, err)
		}
	}
	if err := o.del(o.rec.Contexts); err != nil {
		return fmt.Errorf("%s (container ID %s) could not be given back; it is tried again in the background: %w", o.key, o.id, err)
	}
	if time.Now().Before(o.rec.SettlesAt) {
		return nil // an earlier ADD may still act: a last DEL follows then
	}
	return o.forget()
}

// finish of adding: nothing was handed out, so it is given back; what was handed
// out before is healed to the same addresses where the profile can ask for them.
func (o *op) heal() error {
	c := o.lastContext()
	if len(o.rec.Claims) == 0 && o.rec.State == record.Adding {
		return o.giveBack()
	}
	if !canAskFor(c, o.claimed()) {
		o.setLost(fmt.Errorf("plugin %s cannot be asked for these addresses; the owner gets another when it asks again", c.Plugin))
		if o.rec.State == record.Adding {
			if err := o.begin(); err != nil {
				return err
			}
			return o.del(o.rec.Contexts)
		}
		return nil
	}
	return o.acquire(goal{prefer: o.addresses(), must: o.claimed()})
}

// grant hands out what is held: it adds claims, confirms or renews the
// expiration, and writes only what has changed.
func (o *op) grant(want goal) error {
	r := o.rec.Clone()
	families, err := want.choose(r.Result.Addresses)
	if err != nil {
		return fmt.Errorf("%s (container ID %s): %w", o.key, o.id, err)
	}
	o.claim(&r, families, want.expire)
	r.State, r.ReleaseAt = record.Held, time.Time{}
	if !o.unsure && sameGrant(r, *o.rec) {
		return nil
	}
	return o.write(r)
}

// claim adds families to a record. What was claimed without an expiration is
// confirmed and never expires again.
func (o *op) claim(r *record.Record, families []record.Family, expire bool) {
	if len(families) == 0 {
		return // healing hands out nothing new
	}
	confirmed := len(r.Claims) > 0 && r.Expiration == nil
	for _, f := range families {
		if !r.Claimed(f) {
			r.Claims = append(r.Claims, f)
		}
	}
	slices.Sort(r.Claims)
	r.Expiration = nil
	if expire && !confirmed && o.Expiration > 0 {
		r.Expiration = &record.Expiration{UUID: uuid.NewString(), Deadline: time.Now().Add(o.Expiration)}
	}
}

// today returns the context of a new ADD and the contexts that need a DEL
// before it. Where a DEL can come late, an ID is not used again after one.
func (o *op) today() (today call.Context, old []call.Context, err error) {
	generation := 0
	if o.rec != nil {
		old, generation = o.rec.Contexts, o.rec.Generation
	}
	today, err = o.plugin.Context(context.Background(), o.pool, o.containerID)
	if err != nil {
		return today, nil, fmt.Errorf("%s: %w", o.key, err)
	}
	today.ContainerID = identity.Generation(o.id, generation)
	if !slices.ContainsFunc(old, today.Equal) && today.Profile.RepeatedAdd != profile.RepeatedAddSameAnswer {
		old = append(slices.Clone(old), today)
	}
	if today.Profile.LateDel && len(old) > 0 {
		today.ContainerID = identity.Generation(o.id, generation+1)
	}
	return today, old, nil
}

// intend writes adding, keeping every older context (step 3).
func (o *op) intend(today call.Context) error {
	now := time.Now()
	r := record.Record{
		ContainerID: o.id, Owner: o.owner, Pool: o.pool, Node: o.Node,
		Network: today.Network, MachineID: o.MachineID, Created: now,
	}
	if o.rec != nil {
		r = o.rec.Clone()
	}
	if today.ContainerID != identity.Generation(o.id, r.Generation) {
		r.Generation++
	}
	r.State, r.BootID, r.ReleaseAt = record.Adding, o.BootID, time.Time{}
	if len(r.Claims) == 0 {
		// Nothing of it was handed out any more, so nothing is to be healed.
		r.Result, r.Network, r.Expiration = call.Result{}, today.Network, nil
	}
	r.Contexts = append(slices.DeleteFunc(r.Contexts, today.Equal), today)
	return o.write(r)
}

// hold writes what the ADD returned. A family that was claimed before stays so
// only if its address is the same: the owner must not believe in another.
func (o *op) hold(today call.Context, res call.Result, families []record.Family, expire bool) error {
	r := o.rec.Clone()
	r.Claims = slices.DeleteFunc(r.Claims, func(f record.Family) bool {
		a, _ := o.rec.Address(f)
		return !slices.ContainsFunc(res.Addresses, func(b call.Address) bool { return a.Addr() == b.Addr() })
	})
	o.claim(&r, families, expire)
	today.PrevResult, res.Raw = res.Raw, nil
	r.State, r.Result, r.Network, r.BootID = record.Held, res, today.Network, o.BootID
	r.Contexts = append(slices.DeleteFunc(r.Contexts, today.Equal), today)
	if err := o.write(r); err != nil {
		return err
	}
	o.setVerified()
	return nil
}
