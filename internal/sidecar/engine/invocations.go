package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// newInvocation returns the invocation of a new ADD and the invocations that need a DEL before. Its
// AddRefused tells of the earlier ADDs with it.
func (op *operation) newInvocation() (inv call.Invocation, old []call.Invocation, err error) {
	if op.entry.rec != nil {
		old = op.entry.rec.Invocations
	}
	network, err := op.engine.plugin.Network(op.entry.pool)
	if err == nil {
		err = op.assignContainerID(network.Name)
	}
	if err == nil {
		inv, err = op.engine.plugin.NewInvocation(op.callCtx(), network, op.entry.id, op.entry.owner)
	}
	if err != nil {
		return call.Invocation{}, nil, fmt.Errorf("%s: %w", op, err)
	}
	inv.ContainerID = op.nextID(inv.Profile)
	inv.AddRefused = true
	if i := slices.IndexFunc(old, inv.Equal); i >= 0 {
		inv.AddActsUntil, inv.AddRefused = old[i].AddActsUntil, old[i].AddRefused // the earlier ADD may still act
	} else if inv.Profile.DelBeforeAdd() {
		old = append(slices.Clone(old), inv)
	}
	return inv, old, nil
}

// assignContainerID sets the container ID of generation 0: a recorded one is kept, a new one is
// derived from the network. An ID that another attachment has is rejected
// (docs/design/how-it-works.md, Identity).
func (op *operation) assignContainerID(network string) error {
	if op.entry.rec != nil {
		return nil
	}
	id := containerid.For(op.entry.owner, op.engine.opts.Node, network)
	op.engine.mu.Lock()
	defer op.engine.mu.Unlock()
	if other, ok := op.engine.byID[id]; ok && other != op.entry {
		return newError(Failed, "%s: its container ID %s belongs to %s already; release it there first", op.entry.key, id, other.key)
	}
	if op.entry.id != id {
		delete(op.engine.byID, op.entry.id)
	}
	op.engine.byID[id], op.entry.id = op.entry, id
	return nil
}

// nextID returns the container ID of the next ADD with a profile.
func (op *operation) nextID(p profile.Profile) string {
	if p.SingleUseIDs() {
		return containerid.Unique(op.entry.id)
	}
	generation := 0
	if op.entry.rec != nil {
		generation = op.entry.rec.Generation
	}
	return containerid.Generation(op.entry.id, generation)
}

// idInUseByDel reports whether a DEL may still act on the container ID of an invocation.
func (op *operation) idInUseByDel(inv call.Invocation) bool {
	return !inv.Profile.SingleUseIDs() && inv.ContainerID != op.nextID(inv.Profile)
}

// addConfigured adds to each invocation whose ADDs the plugin refused the one of an ADD today: the
// plugin may refuse the recorded DEL for the same reason, such as a profile that named no pod.
func (op *operation) addConfigured() {
	for _, inv := range op.entry.rec.Invocations {
		if !inv.AddRefused {
			continue
		}
		network, err := op.engine.plugin.Network(op.entry.pool)
		if err != nil {
			return
		}
		today, err := op.engine.plugin.NewInvocation(op.callCtx(), network, inv.ContainerID, op.entry.owner)
		if err != nil || slices.ContainsFunc(op.entry.rec.Invocations, today.Equal) {
			continue
		}
		today.AddRefused = true // there was none
		op.setInvocations(withLast(op.entry.rec.Invocations, today))
		op.entry.dirty = true // the disk lacks it
	}
}

// withLast puts an invocation at the end of a list, replacing an equal one.
func withLast(all []call.Invocation, last call.Invocation) []call.Invocation {
	return append(slices.DeleteFunc(slices.Clone(all), last.Equal), last)
}

// addsEnded reports whether no ADD of the record may still act. It must be evaluated before the
// DEL that is to be the last: an ADD that acts during that DEL may act after it.
func (op *operation) addsEnded() bool { return !time.Now().Before(op.addActsUntil()) }

// addActsUntil returns the last moment at which an ADD of the record may act; zero for none.
func (op *operation) addActsUntil() time.Time {
	var last time.Time
	for _, inv := range op.entry.rec.Invocations {
		if inv.AddActsUntil.After(last) {
			last = inv.AddActsUntil
		}
	}
	return last
}
