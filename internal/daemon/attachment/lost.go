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

// keepLost runs an ADD under a container ID of its own. What an earlier one kept is lost, too, or can be kept by this one.
func (op *Operation) keepLost() error {
	inv, err := op.lostInvocation()
	if err != nil {
		return err
	}
	r := op.Rec.Clone()
	r.Invocations = slices.Insert(r.Invocations, 0, inv)
	if err := op.write(r); err != nil {
		return err
	}
	earlier := slices.DeleteFunc(slices.Clone(r.Invocations), func(o call.Invocation) bool { return !o.KeepsLost || o.Equal(inv) })
	done, err := op.delEach(earlier)
	if err != nil {
		return err
	}
	res, err := op.World.Call(call.VerbAdd, inv)
	if outcomeUnknown(err) {
		inv.AddActsUntil = inv.Profile.ActsUntil(op.World.Now())
	}
	inv.PrevResult, inv.AddRefused = res.Raw, isRefused(err)
	kept := outcomeUnknown(err) || slices.ContainsFunc(call.Addrs(res.Addresses), op.Rec.Holds)
	if !kept {
		unused, delErr := op.delEach([]call.Invocation{inv})
		done, err = append(done, unused...), errors.Join(err, delErr)
	}
	r = op.Rec.Clone()
	r.Invocations = append([]call.Invocation{inv}, without(r.Invocations, []call.Invocation{inv})...)
	r.Invocations = without(r.Invocations, done)
	if err = errors.Join(err, op.write(r)); err == nil && !kept {
		err = fmt.Errorf("plugin %s returned %v; expected one of %v", inv.Plugin, call.Addrs(res.Addresses), op.addresses())
	}
	return err
}

// lostInvocation returns the invocation of that ADD. It is the daemon's own: the plugin knows no container by it.
func (op *Operation) lostInvocation() (call.Invocation, error) {
	n, err := op.World.Network()
	if err == nil && n.Name != op.Rec.Network {
		err = fmt.Errorf("network %q is not configured", op.Rec.Network)
	}
	if err != nil {
		return call.Invocation{}, err
	}
	inv, err := op.World.Invocation(call.VerbAdd, n, containerid.Unique(op.Rec.ContainerID, op.World.Unique()), nil)
	inv.KeepsLost = true
	return inv, err
}
