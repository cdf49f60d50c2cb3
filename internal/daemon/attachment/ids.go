package attachment

import (
	"fmt"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// The container ID of a container interface is the one that its runtime chose; no other is used for it, so where
// another attachment gets the next generation, its ADD fails. No ADD uses an ID on which an earlier DEL may still
// act (docs/design/how-it-works.md, Identity).

// newInvocation returns the invocation of a new ADD, or of another verb without one, and the invocations that need a
// DEL before. Its AddRefused tells of the earlier ADDs with it.
func (op *Operation) newInvocation(verb string) (inv call.Invocation, old []call.Invocation, err error) {
	if op.Rec != nil {
		old = op.Rec.Invocations
	}
	network, err := op.World.Network()
	if err == nil {
		err = op.assignContainerID(network.Name)
	}
	if err == nil {
		inv, err = op.World.Invocation(verb, network, op.ID, op.parameters())
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

// parameters returns what the runtime of a container interface passes, or what it passed in the last ADD; nil for
// another owner.
func (op *Operation) parameters() *call.Container {
	if op.Container != nil || !OfContainer(op.Owner) {
		return op.Container
	}
	recorded := call.ContainerOf(op.LastInvocation())
	if op.Rec != nil && op.Rec.Lent != nil {
		recorded = op.Rec.Lent.Container
	}
	return &recorded
}

// assignContainerID sets the container ID of generation 0: a recorded one is kept, a new one is
// derived from the network (docs/design/how-it-works.md, Identity).
func (op *Operation) assignContainerID(network string) error {
	if op.Rec != nil {
		return nil
	}
	id := containerid.For(op.Owner, op.Opts.Node, network)
	if err := op.World.AssignID(id); err != nil {
		return err
	}
	op.ID = id
	op.publish()
	return nil
}

// nextID returns the container ID of the next ADD with a profile.
func (op *Operation) nextID(p profile.Profile) string {
	if id := RuntimeID(op.Owner); id != "" {
		return id
	}
	if p.SingleUseIDs() {
		return containerid.Unique(op.ID, op.World.Unique())
	}
	generation := 0
	if op.Rec != nil {
		generation = op.Rec.Generation
	}
	return containerid.Generation(op.ID, generation)
}

// idInUseByDel reports whether a DEL may still act on the container ID of an invocation.
func (op *Operation) idInUseByDel(inv call.Invocation) bool {
	if OfContainer(op.Owner) {
		return op.World.Now().Before(op.Rec.LateDel.Until)
	}
	return !inv.Profile.SingleUseIDs() && inv.ContainerID != op.nextID(inv.Profile)
}

// idInUseError rejects an ADD while an earlier DEL may act on the container ID of a container interface.
func (t *try) idInUseError() error {
	wait := t.Rec.LateDel.Until.Sub(t.World.Now())
	return &Error{Kind: Busy, RetryAfter: wait, Err: fmt.Errorf("a DEL with an unknown outcome may still act on container ID %s for %s; try again later", RuntimeID(t.Owner), wait)}
}

// withConfigured returns the invocations of a release: those of the record, and for each whose ADDs the
// plugin refused the one of today. The plugin may refuse the recorded DEL for the same reason, such
// as a profile that named no pod.
func (op *Operation) withConfigured() []call.Invocation {
	all := op.Rec.Invocations
	for _, inv := range op.Rec.Invocations {
		if !inv.AddRefused {
			continue
		}
		network, err := op.World.Network()
		if err != nil {
			break
		}
		today, err := op.World.Invocation(call.VerbDel, network, inv.ContainerID, op.parameters())
		if err != nil || slices.ContainsFunc(all, today.Equal) {
			continue
		}
		today.AddRefused = true // there was none
		all = withLast(all, today)
	}
	return all
}

// withLast puts an invocation at the end of a list, replacing an equal one.
func withLast(all []call.Invocation, last call.Invocation) []call.Invocation {
	return append(slices.DeleteFunc(slices.Clone(all), last.Equal), last)
}
