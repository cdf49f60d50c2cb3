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
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// This file is the protocol: what an attachment goes through from one state to
// the next, by whoever holds its turn.
//
//	(none) --allocate--> adding --ADD--> held --release--> releasing --DEL--> (none)
//	                       ^              | ^                 ^
//	                       +--- lost -----+ +--- cooldown -----+
//
// Every step that changes the plugin's state is in the journal before it.

// allocate answers from what is held, or acquires it.
func (o *op) allocate(f record.Family, expire bool) error {
	return o.keepOrAcquire(goal{prefer: o.addresses(), owed: o.owed(), families: o.wanted(f), any: f == "", expire: expire})
}

// keepOrAcquire hands out what is held and stands; everything else is acquired.
func (o *op) keepOrAcquire(want goal) error {
	if o.rec != nil && (o.rec.State == record.Held || o.rec.State == record.Cooldown) {
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
	have := o.addresses()
	if o.rec != nil && o.rec.State == record.Releasing {
		have = nil // it is on its way back
	}
	if other, id, ok := o.holder(o.pool, ip); ok && other != o.key && !slices.Contains(have, ip) {
		return fail(Exists, "address %s belongs to %s (container ID %s)", ip, other, id)
	}
	want := goal{must: []netip.Addr{ip}, families: []record.Family{record.FamilyOf(ip)}}
	if len(have) > 0 {
		if !slices.Contains(have, ip) {
			return fail(Failed, "%s (container ID %s) holds %v, not %s; release those first, or allocate to be told what is held", o.key, o.id, have, ip)
		}
		want.prefer = have
	}
	return o.keepOrAcquire(want)
}

// release takes the claim of an address back, and gives the attachment back
// when no claim is left: one DEL frees all families.
func (o *op) release(ip netip.Addr, skipDelay bool) error {
	// Look again: it may have changed hands while we waited for our turn.
	if o.rec == nil || !o.rec.Holds(ip) {
		return notHeld(o.pool, ip)
	}
	if o.rec.State == record.Releasing || o.rec.State == record.Cooldown && skipDelay {
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
	if skipDelay {
		return o.giveBack()
	}
	return o.letGo()
}

// letGo drops every claim: the attachment cools, or is given back at once.
func (o *op) letGo() error {
	if o.ReleaseDelay <= 0 || o.rec.State != record.Held {
		return o.giveBack()
	}
	r := o.rec.Clone()
	r.State, r.Claims, r.Expiration = record.Cooldown, nil, nil
	r.ReleaseAt = time.Now().Add(o.ReleaseDelay)
	return o.write(r)
}

// stands asks, as the profile says, whether what is recorded still stands. An
// error is "could not ask": nothing may be concluded from it, because a live
// address is never given up because a question failed.
func (o *op) stands() (bool, error) {
	if o.believed() {
		return true, nil
	}
	c := o.lastContext()
	ok, known := o.lookup(c)
	if !known {
		if o.doubted {
			o.setLost(errors.New("an older attachment has the same address"))
			return false, nil
		}
		if o.mayHaveLostWrites(c) && canAskFor(c, o.owed()) {
			return false, nil
		}
		if err := o.begin(); err != nil {
			return false, err
		}
		var err error
		if ok, err = o.ask(c); err != nil {
			return false, fmt.Errorf("%s (container ID %s): could not ask the plugin whether %v still stand, so nothing was changed: %w",
				o.key, o.id, o.addresses(), err)
		}
	}
	if !ok {
		o.setLost(fmt.Errorf("plugin %s does not hold it", c.Plugin))
		return false, nil
	}
	o.setVerified()
	if o.rec.BootID != o.BootID {
		r := o.rec.Clone()
		r.BootID = o.BootID
		return true, o.write(r)
	}
	return true, nil
}

// lookup reads from the plugin's store whether it holds the recorded addresses. known is
// false where lookups do not work: then the plugin is asked.
func (o *op) lookup(c call.Invocation) (holds, known bool) {
	if !c.StoreProven {
		return false, false
	}
	holds, err := o.plugin.Holds(c, o.addresses())
	if err != nil {
		o.log().WithError(err).Debug("The plugin's store cannot be looked up; the plugin is asked")
	}
	return holds, err == nil
}

// mayHaveLostWrites reports whether the plugin may have lost its last writes in a reboot,
// so that a check that compares no address would also confirm another one.
func (o *op) mayHaveLostWrites(c call.Invocation) bool {
	return o.rec.BootID != o.BootID && c.Profile.OnNode() && c.Profile.CheckProves != profile.ProvesAddress
}

// believed tells whether the plugin has confirmed what is recorded a short while ago.
func (o *op) believed() bool {
	last := o.lastVerified()
	return o.rec.BootID == o.BootID && !last.IsZero() && time.Since(last) < o.VerifyInterval
}

// ask puts the question of the profile to the plugin.
func (o *op) ask(c call.Invocation) (bool, error) {
	switch c.VerifyBy() {
	case profile.VerifyNothing:
		return true, nil
	case profile.VerifyAdd:
		res, err := o.plugin.Add(context.Background(), o.call(c))
		if mayStillAct(err) {
			// Asked in vain, but it may still allocate: a DEL must come after that.
			c.AddActsUntil = c.Profile.AddActsUntil(time.Now())
			r := o.rec.Clone()
			r.Invocations = withLast(r.Invocations, c)
			o.setRecord(r)
			return false, errors.Join(err, o.write(r))
		}
		if err != nil {
			return false, err
		}
		if sameAddresses(res.Addresses, o.rec.Result.Addresses) {
			return true, nil
		}
		// The question itself allocated. What it got is given back as that of any
		// ADD that returned something else: with its DEL, pause and generation.
		r := o.rec.Clone()
		r.State = record.Adding
		return false, o.write(r)
	default:
		err := o.plugin.Check(context.Background(), o.call(c))
		if call.Lost(c, err) {
			return false, nil
		}
		return err == nil, err
	}
}

// acquire makes the attachment held. It asks for what is wanted, and for less
// only if the plugin is in order but will not give it. Either way the holder of
// a duplicate is verified when ours has been given back.
func (o *op) acquire(want goal) error {
	if err := o.begin(); err != nil {
		return err
	}
	want.known = o.rec.Addresses()
	var failed error
	for {
		next, err := o.try(&want, failed)
		var d *duplicate
		if errors.As(err, &d) && d.other != nil {
			defer o.errands.add(d.other)
		}
		if !next {
			return err
		}
		failed = err
	}
}

// try runs the protocol once: write the intention, DEL, ADD, reserve, write what
// was got. Steps are numbered as in docs/how-it-works.md, Allocate. failed is why the try
// before it failed. It tells whether there is something left to ask for; if there
// is not, what failed has been undone.
func (o *op) try(want *goal, failed error) (next bool, err error) {
	today, old, err := o.today()
	if err != nil {
		return false, errors.Join(err, failed)
	}
	if o.rec == nil {
		adopted, absent, err := o.adopt(today, want)
		if d, ok := errors.AsType[*duplicate](err); ok { // released by the DEL below; then the other is verified
			if d.other != nil {
				defer o.errands.add(d.other)
			}
		} else if adopted || err != nil {
			return false, err
		}
		if absent {
			old = nil // no DEL is needed
		}
	}
	requests := want.requests(today)
	today.Requested = want.request(requests[0])
	defer o.expect(o.toClear(old, today))()
	if err := o.intend(today); err != nil { // step 3
		return false, errors.Join(fmt.Errorf("%s (container ID %s): %w; nothing more was asked of the plugin", o.key, o.id, err), failed)
	}
	clear := o.clear(old, today) // step 4: go on even if it fails
	if failed != nil && !clear {
		// What the last try may have left must be gone before the next.
		return false, o.undo(today, failed)
	}
	if o.mayBeReleased(today) { // a DEL may still act: another ID
		today.ContainerID, today.AddActsUntil = o.nextID(today.Profile), time.Time{}
		if err := o.intend(today); err != nil {
			return false, fmt.Errorf("%s (container ID %s): %w; nothing more was asked of the plugin", o.key, o.id, err)
		}
	}
	err = o.add(today, *want)
	if err == nil {
		return false, nil
	}
	if clear && !want.repeats(err) { // else what was left may have stood in the way: ask the same again
		want.skip++
		requests = requests[1:]
	}
	if len(requests) > 0 && worthAnotherTry(err) {
		return true, err
	}
	return false, o.undo(today, err)
}

// add runs one ADD and makes its result the record: steps 5 to 7.
func (o *op) add(today call.Invocation, want goal) error {
	res, err := o.plugin.Add(context.Background(), o.call(today)) // step 5
	if err != nil {
		return err
	}
	families, err := want.accepts(res, today.Requested)
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
// out before: that must be reacquired.
func (o *op) undo(today call.Invocation, cause error) error {
	cause = fmt.Errorf("%s (container ID %s): %w", o.key, o.id, cause)
	if mayStillAct(cause) {
		// What is only in memory is derived again at start, where every adding
		// record is taken for one whose ADD may still act.
		today.AddActsUntil = today.Profile.AddActsUntil(time.Now())
	}
	r := o.rec.Clone()
	r.Invocations = withLast(r.Invocations, today)
	o.setRecord(r)
	if o.unsure {
		// The disk may say held. Until it says adding again, the plugin must keep
		// the addresses, or a restart would believe in what another has got.
		if err := o.write(r); err != nil {
			return cause
		}
	}
	settled := o.settled()
	gone := o.clear(r.Invocations, today)
	switch {
	case len(r.Claims) > 0:
		o.setLost(cause)
		return cause
	case !gone:
		return fmt.Errorf("%w; a DEL has not succeeded yet and is tried again in the background", cause)
	case !settled:
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
	defer o.expect(o.toGiveBack())()
	if err := o.writeReleasing(); err != nil {
		return fmt.Errorf("%s (container ID %s): %w; nothing was asked of the plugin", o.key, o.id, err)
	}
	settled := o.settled()
	if err := o.delAll(o.rec.Invocations); err != nil {
		return fmt.Errorf("%s (container ID %s) could not be given back; it is tried again in the background: %w", o.key, o.id, err)
	}
	if !settled {
		return nil // an earlier ADD may still act: a last DEL follows then
	}
	return o.forget()
}

// writeReleasing makes releasing durable, in this boot: a DEL of it may act from then on.
func (o *op) writeReleasing() error {
	if o.rec.State == record.Releasing && !o.unsure && o.rec.BootID == o.BootID {
		return nil
	}
	r := o.rec.Clone()
	r.State, r.Claims, r.Expiration, r.ReleaseAt, r.BootID = record.Releasing, nil, nil, time.Time{}, o.BootID
	return o.write(r)
}

// reacquire finishes what is adding, and gets back what was handed out and lost: to
// the same addresses where the profile can ask for them. What was never handed
// out is given back.
func (o *op) reacquire() error {
	if o.rec.State == record.Adding && len(o.rec.Claims) == 0 {
		o.action = ActionCleanup
		return o.giveBack()
	}
	o.action = ActionReacquire
	c := o.lastContext()
	if canAskFor(c, o.owed()) {
		return o.acquire(goal{prefer: o.addresses(), must: o.owed()})
	}
	o.setLost(fmt.Errorf("plugin %s cannot be asked for these addresses; the owner gets another when it asks again", c.Plugin))
	if o.rec.State != record.Adding {
		return nil
	}
	if err := o.begin(); err != nil {
		return err
	}
	if o.unsure {
		// The disk may say held: until it says adding, the plugin must keep the addresses.
		if err := o.write(o.rec.Clone()); err != nil {
			return err
		}
	}
	settled := o.settled()
	err := o.delAll(o.rec.Invocations)
	o.idle = err == nil && settled
	return err
}

// granted tells whether what is wanted is handed out already, for good, and is
// believed: the plugin need not be asked, and there is nothing to be written.
func (o *op) granted(want goal) bool {
	if o.rec == nil || o.rec.State != record.Held || o.rec.Expiration != nil || o.unsure || !o.believed() {
		return false
	}
	families, err := want.choose(o.rec.Result.Addresses)
	unclaimed := func(f record.Family) bool { return !o.rec.Claimed(f) }
	elsewhere := func(ip netip.Addr) bool { return !o.rec.Holds(ip) }
	return err == nil && !slices.ContainsFunc(families, unclaimed) && !slices.ContainsFunc(want.must, elsewhere)
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
		return // reacquiring hands out nothing new
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

// today returns the context of a new ADD and the contexts that need a DEL before it.
func (o *op) today() (today call.Invocation, old []call.Invocation, err error) {
	if o.rec != nil {
		old = o.rec.Invocations
	}
	today, err = o.plugin.NewInvocation(context.Background(), o.pool, o.owner, o.containerID)
	if err != nil {
		return today, nil, fmt.Errorf("%s: %w", o.key, err)
	}
	today.ContainerID = o.nextID(today.Profile)
	if i := slices.IndexFunc(old, today.Equal); i >= 0 {
		today.AddActsUntil = old[i].AddActsUntil // the earlier ADD may still act
	} else if today.Profile.DelBeforeAdd() {
		old = append(slices.Clone(old), today)
	}
	return today, old, nil
}

// recordOf returns a copy of the record, or a first one for a context.
func (o *op) recordOf(today call.Invocation) record.Record {
	if o.rec != nil {
		return o.rec.Clone()
	}
	return record.Record{
		ContainerID: o.id, Owner: o.owner, Pool: o.pool, Node: o.Node,
		Network: today.Network, MachineID: o.MachineID, Created: time.Now(),
	}
}

// intend writes adding, keeping every older context (step 3).
func (o *op) intend(today call.Invocation) error {
	r := o.recordOf(today)
	r.State, r.BootID, r.ReleaseAt = record.Adding, o.BootID, time.Time{}
	if len(r.Claims) == 0 {
		// Nothing of it was handed out any more, so nothing is to be reacquired.
		r.Result, r.Network, r.Expiration = call.Result{}, today.Network, nil
	}
	r.Invocations = withLast(r.Invocations, today)
	o.idle = false
	return o.write(r)
}

// hold writes what the ADD returned. A family that was claimed before stays so
// only if its address is the same: the owner must not believe in another.
func (o *op) hold(today call.Invocation, res call.Result, families []record.Family, expire bool) error {
	r := o.recordOf(today)
	before := r
	today.PrevResult, today.StoreProven, res.Raw = res.Raw, res.InStore, nil
	r.Result = answeredLast(res, before)
	same := func(f record.Family) bool {
		before, _ := before.Address(f)
		now, _ := r.Address(f)
		return before.Addr() == now.Addr()
	}
	changed := slices.ContainsFunc(r.Claims, func(f record.Family) bool { return !same(f) })
	r.Claims = slices.DeleteFunc(r.Claims, func(f record.Family) bool { return !same(f) })
	o.claim(&r, families, expire)
	r.State, r.Network, r.BootID = record.Held, today.Network, o.BootID
	r.Invocations = withLast(r.Invocations, today)
	if err := o.write(r); err != nil {
		return err
	}
	o.setHeld(changed)
	return nil
}
