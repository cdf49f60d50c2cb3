package attachment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// The addresses of a container interface are kept after its DEL, for the release delay. The ADD of the next
// container of its pod releases them and requests them again (docs/install/pods.md, Cooldown). So the plugin has
// them under the ID of that container, and a late DEL of the old one finds nothing.

// Pod returns the namespace and name of the pod of a container interface; empty for another attachment.
func (r Record) Pod() string {
	if !OfContainer(r.Owner) {
		return ""
	}
	return podOf(r.Container().Args)
}

// podOf returns the namespace and name of a container's pod; empty for another container.
func podOf(args string) string {
	var namespace, name string
	for arg := range strings.SplitSeq(args, ";") {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "K8S_POD_NAMESPACE":
			namespace = value
		case "K8S_POD_NAME":
			name = value
		}
	}
	if namespace == "" || name == "" {
		return ""
	}
	return namespace + "/" + name
}

// SharesPod reports whether the record and an invocation are of one pod, interface and network: to a plugin that is
// keyed by the pod they are one.
func (r *Record) SharesPod(inv call.Invocation) bool {
	last, pod := r.Container(), podOf(inv.Args)
	return pod != "" && pod == podOf(last.Args) && last.IfName == inv.IfName && r.Network == inv.Network
}

// Keeps reports whether the record is of a container interface that has what a DEL with an invocation of another one would
// release: to the plugin they are one, because it knows them by the container ID alone, or by the pod alone. By the pod,
// the record may also be about to get it.
func (r *Record) Keeps(inv call.Invocation) bool {
	if r != nil && inv.Profile.Key() == profile.KeyedByContainer {
		return isHeld(r.State) && r.last().ContainerID == inv.ContainerID && r.Network == inv.Network
	}
	return r != nil && (r.State == Held || r.State == Adding) && r.SharesPod(inv)
}

// keepOther keeps what another container interface has from a DEL. Of a plugin that is keyed by the pod, the ADD of this
// one has replaced the container ID: the ADD of the other one is repeated before the DEL. skip reports that the ADD of this
// one may still act, and replace the ID after that; or that the plugin is keyed by the container, and the DEL of the other
// interface follows, which releases both.
func (op *Operation) keepOther(inv call.Invocation) (skip bool, err error) {
	switch {
	case !OfContainer(op.Owner):
		return false, nil
	case inv.Profile.Key() == profile.KeyedByContainer:
		_, skip = op.World.Keeper(inv)
		return skip, nil
	case inv.Profile.Key() != profile.KeyedByPod || inv.Profile.DelBeforeAdd():
		return false, nil
	}
	if op.World.Now().Before(inv.AddActsUntil) {
		return true, nil
	}
	other, ok := op.World.Keeper(inv)
	if !ok || op.World.Settle(other, Kept, true) {
		return false, nil
	}
	return false, &call.Error{
		Verb: call.VerbDel, Plugin: inv.Plugin, ContainerID: inv.ContainerID, Outcome: call.NotStarted,
		Err: fmt.Errorf("the ADD of %s, another container of the pod, could not be repeated before it", other),
	}
}

// Keep repeats the ADD of a held container.
func (op *Operation) Keep() error {
	if op.Rec == nil || op.Rec.State != Held {
		return nil
	}
	_, err := op.verifyByAdd(op.LastInvocation())
	return err
}

// keptFor reports whether a record has the addresses that the pod of a new container had, and that can be
// requested for it. Its container was deleted, or ended with a reboot.
func keptFor(r *Record, inv call.Invocation) bool {
	return OfContainer(r.Owner) && r.SharesPod(inv) && (r.Lent != nil || canRequest(inv, r.Addrs()))
}

// takeOver makes a new container interface request the addresses that its pod had last, unless the runtime
// requests others. Until it has them, or others, no other attachment gets them.
func (t *try) takeOver(inv call.Invocation) {
	for _, other := range t.World.Spare() {
		if keptFor(other.Record, inv) && canRequest(inv, other.Record.Addrs()) {
			t.previous, t.known = other, slices.Clone(other.Record.Addresses())
		}
	}
	if len(t.known) > 0 && len(t.OfRuntime) == 0 {
		unusable := func(a call.Address) bool { return t.excludes(a.Addr()) || t.outside(a.Addr()) }
		t.known = slices.DeleteFunc(t.known, unusable)
		t.Preferred = call.Addrs(t.known)
	}
}
