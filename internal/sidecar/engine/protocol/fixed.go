package protocol

import (
	"slices"
	"strconv"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// The address of a pod of a StatefulSet is kept after the DEL of its container, for the release delay. The
// ADD of the pod's next container releases it and requests it again (docs/design/pods.md, Fixed addresses).
// So the plugin has it under the ID of that container, and a late DEL of the old one finds nothing.

// statefulPod returns the namespace and name of a container's pod; empty unless the name ends in an ordinal,
// as those of a StatefulSet's pods do.
func statefulPod(inv call.Invocation) string {
	var namespace, name string
	for arg := range strings.SplitSeq(inv.Args, ";") {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "K8S_POD_NAMESPACE":
			namespace = value
		case "K8S_POD_NAME":
			name = value
		}
	}
	dash := strings.LastIndexByte(name, '-')
	if _, err := strconv.ParseUint(name[dash+1:], 10, 31); err != nil || dash < 1 {
		return ""
	}
	return namespace + "/" + name
}

// outlivesContainer reports whether the addresses of a container interface are kept after its DEL.
func outlivesContainer(r *record.Record, o *Options) bool {
	inv := State{Rec: r}.LastInvocation()
	return o.ReleaseDelay > 0 && r.State == record.Held && statefulPod(inv) != "" && canRequest(inv, r.Addrs())
}

// KeptFor reports whether a record has the addresses that the pod of a new container had. Its container was
// deleted, or ended with a reboot.
func KeptFor(r *record.Record, inv call.Invocation) bool {
	if r == nil || r.State != record.Cooldown || !OfContainer(r.Owner) {
		return false
	}
	last, pod := State{Rec: r}.LastInvocation(), statefulPod(inv)
	return pod != "" && pod == statefulPod(last) && last.IfName == inv.IfName && last.Network == inv.Network
}

// takeOver makes a new container interface request the addresses that its pod had, unless the runtime
// requests others. Until it has them, or others, no other attachment gets them.
func (op *Operation) takeOver(inv call.Invocation, t *try) {
	k, had := op.World.Kept(inv)
	if len(had) == 0 {
		return
	}
	op.previous, op.reserved = k, call.Addrs(had)
	if len(t.OfRuntime) == 0 {
		unusable := func(a call.Address) bool { return op.excludes(a.Addr()) || op.outside(a.Addr()) }
		t.known = slices.DeleteFunc(had, unusable)
		t.Preferred = call.Addrs(t.known)
	}
}

// EndCooldown releases an attachment in cooldown.
func (op *Operation) EndCooldown() error {
	if op.Rec == nil || op.Rec.State != record.Cooldown {
		return nil // it was requested again, or is being released
	}
	return op.release()
}
