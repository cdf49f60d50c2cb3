package attachment

import (
	"errors"
	"fmt"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// KeepLost notes that the plugin has given an address of the record r, of a container, to another attachment, and makes the
// plugin keep it until the container is released: what the plugin has lost, it allocates next, and would do so for every
// attachment to come. The container itself cannot get it again, because a DEL of its ID would free its other addresses.
func (op *Operation) KeepLost(r *Record) bool {
	if op.Rec != r || !isHeld(r.State) {
		return false
	}
	plugin := op.LastInvocation().Plugin
	op.setLost(fmt.Errorf("plugin %s has allocated one of its addresses again", plugin))
	err := op.keepLost()
	if err != nil {
		op.World.Report(Event{EventLostNotKept, err})
	}
	return err == nil
}

// lostInPart reports whether the plugin keeps an address of a container under another ID.
func (r *Record) lostInPart() bool {
	return slices.ContainsFunc(r.Invocations, func(inv call.Invocation) bool { return inv.KeepsLost })
}

// keepLost runs an ADD under a separate container ID. What an earlier one kept is lost, too, or can be kept by this one. A
// DEL that is refused may show that it keeps nothing: its ID is used again, so that the record does not grow.
func (op *Operation) keepLost() error {
	n, err := op.World.Network()
	if err == nil && n.Name != op.Rec.Network {
		err = fmt.Errorf("network %q is not configured", op.Rec.Network)
	}
	if err != nil {
		return err
	}
	earlier := slices.DeleteFunc(slices.Clone(op.Rec.Invocations), func(inv call.Invocation) bool { return !inv.KeepsLost })
	done, err := op.delEach(earlier)
	op.setInvocations(without(op.Rec.Invocations, done))
	if err != nil && !isPluginRefusal(err) {
		return err
	}
	inv, err := op.lostInvocation(n, without(earlier, done))
	if err != nil {
		return err
	}
	refused := inv.AddRefused
	inv.AddRefused = false
	r := op.Rec.Clone()
	r.Invocations = slices.Insert(without(r.Invocations, []call.Invocation{inv}), 0, inv)
	if err := op.write(r); err != nil {
		return err
	}
	res, err := op.World.Call(call.VerbAdd, inv)
	if outcomeUnknown(err) {
		inv.AddActsUntil = inv.Profile.ActsUntil(op.World.Now())
	}
	inv.PrevResult, inv.AddRefused = res.Raw, refused && isRefused(err)
	r = op.Rec.Clone()
	r.Invocations[0] = inv
	op.setRecord(r) // before a write that may fail
	if outcomeUnknown(err) || slices.ContainsFunc(call.Addrs(res.Addresses), op.Rec.Holds) {
		return errors.Join(err, op.write(op.Rec.Clone()))
	}
	if err == nil {
		err = fmt.Errorf("plugin %s returned %v; expected one of %v", inv.Plugin, call.Addrs(res.Addresses), op.addresses())
	}
	done, delErr := op.delEach([]call.Invocation{inv})
	op.setInvocations(without(op.Rec.Invocations, done))
	return errors.Join(err, delErr, op.write(op.Rec.Clone()))
}

// lostInvocation returns the invocation of that ADD, under an ID that could not be released, or a new one. It is the
// daemon's own: the plugin knows no container by it.
func (op *Operation) lostInvocation(n call.Network, left []call.Invocation) (call.Invocation, error) {
	id := containerid.Unique(op.Rec.ContainerID, op.World.Unique())
	if last := len(left) - 1; last >= 0 && !left[last].Profile.SingleUseIDs() {
		id = left[last].ContainerID
	}
	inv, err := op.World.Invocation(call.VerbAdd, n, id, nil)
	inv.KeepsLost, inv.AddRefused = true, true
	if i := slices.IndexFunc(op.Rec.Invocations, inv.Equal); i >= 0 {
		inv = op.Rec.Invocations[i]
	}
	return inv, err
}
