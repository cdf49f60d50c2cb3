package profiletry

import (
	"context"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// evidence has the results of the steps. An attempt that was not made proves nothing.
type evidence struct {
	// hasCheck reports that the invocation has CHECK.
	hasCheck bool
	// first and second are ADDs of two container IDs, the second while the first is held, and
	// again a repeated ADD of the first.
	first, second, again attempt
	// checkHeld is a CHECK of a held ID, checkOther with the result of another address, checkNew of
	// an ID that never had an ADD, checkDeleted of one after its DEL, and checkAgain after its
	// repeated ADD.
	checkHeld, checkOther, checkNew, checkDeleted, checkAgain attempt
	// delNew is a DEL of an ID that never had an ADD, delTwice a second DEL.
	delNew, delTwice attempt
	requests         requestEvidence
}

// observe runs the steps in a safe order: DEL before the first ADD, so that a plugin that cannot
// release does not allocate, and never more than two held addresses at a time.
func (t *trial) observe(ctx context.Context) error {
	one, err := t.newScratch(ctx, "1")
	if err != nil {
		return err
	}
	inv := one.call.Invocation
	t.seen.hasCheck = inv.HasCheck()
	t.report.Binary, t.report.CNIVersion = inv.Binary, inv.CNIVersion
	t.findEarlier(inv)
	t.report.Versions = append(t.report.Versions, t.Plugin.Versions(inv.Binary)...)
	for _, part := range []func(context.Context, *scratch) error{
		t.observeFirst, t.observeSecond, t.observeNew, t.observeRepeated, t.observeDeleted, t.observeRequests,
	} {
		if err := part(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// observeFirst runs STATUS, DEL of an unknown ID, ADD and CHECK.
func (t *trial) observeFirst(ctx context.Context, one *scratch) (err error) {
	if one.call.Invocation.HasStatus() {
		statusErr := t.record(Step{Verb: call.VerbStatus, Purpose: "see whether the plugin is ready", Outcome: Succeeded}, t.Plugin.Status(ctx, one.call.Invocation))
		if statusErr != nil {
			t.note("STATUS failed: %v", statusErr)
		}
	}
	if t.seen.delNew, err = t.del(ctx, one, "release an ID that never had an ADD"); err != nil {
		return err
	}
	if t.seen.first, err = t.add(ctx, one, "allocate an address"); err != nil {
		return err
	}
	if a := t.seen.first; !a.succeeded() {
		return t.stop("%w; expected an address. Does the pool of network %q have at least two that are free, and is the configuration right (%s)?", a.err, t.Network.Name, t.Network.File)
	}
	t.seen.checkHeld, err = t.check(ctx, one, t.seen.first.result, "check a held address")
	return err
}

// observeSecond allocates for a second ID while the first is held.
func (t *trial) observeSecond(ctx context.Context, one *scratch) error {
	two, err := t.newScratch(ctx, "2")
	if err != nil {
		return err
	}
	if t.seen.second, err = t.add(ctx, two, "allocate for another ID"); err != nil {
		return err
	}
	other, ok := otherResult(t.seen.first.result, t.seen.second.result)
	if ok {
		if t.seen.checkOther, err = t.check(ctx, one, other, "check a held ID with another address"); err != nil {
			return err
		}
	}
	_, err = t.del(ctx, two, "release the second ID")
	return err
}

// observeNew runs CHECK of an ID that never had an ADD, with a result that no ID holds now if there
// is one.
func (t *trial) observeNew(ctx context.Context, _ *scratch) error {
	never, err := t.newScratch(ctx, "3")
	if err != nil {
		return err
	}
	prev := t.seen.first.result
	if t.seen.second.succeeded() {
		prev = t.seen.second.result
	}
	if t.seen.checkNew, err = t.check(ctx, never, prev, "check an ID that never had an ADD"); err != nil {
		return err
	}
	if !never.dirty {
		return nil
	}
	_, err = t.del(ctx, never, "release a possible allocation of that CHECK")
	return err
}

// observeRepeated repeats the ADD of the held ID.
func (t *trial) observeRepeated(ctx context.Context, one *scratch) (err error) {
	if t.seen.again, err = t.add(ctx, one, "repeat the ADD of a held ID"); err != nil || !t.seen.again.refused() {
		return err
	}
	t.seen.checkAgain, err = t.check(ctx, one, t.seen.first.result, "check the held address after the refused ADD")
	return err
}

// observeDeleted releases the first ID, and observes the effect.
func (t *trial) observeDeleted(ctx context.Context, one *scratch) (err error) {
	if _, err = t.del(ctx, one, "release the first ID"); err != nil {
		return err
	}
	if t.seen.delTwice, err = t.del(ctx, one, "release it again"); err != nil {
		return err
	}
	if t.seen.checkDeleted, err = t.check(ctx, one, t.seen.first.result, "check a released address"); err != nil || !one.dirty {
		return err
	}
	_, err = t.del(ctx, one, "release a possible allocation of that CHECK")
	return err
}
