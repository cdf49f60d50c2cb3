package attachment

import (
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// The addresses of a container interface are kept after its DEL, for the release delay. The ADD of the next
// container of its pod releases them and requests them again (docs/design/pods.md, Cooldown). So the plugin has
// them under the ID of that container, and a late DEL of the old one finds nothing.

// podOf returns the namespace and name of a container's pod; empty for another container.
func podOf(inv call.Invocation) string {
	var namespace, name string
	for arg := range strings.SplitSeq(inv.Args, ";") {
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

// KeptFor reports whether a record has the addresses that the pod of a new container had, and that can be
// requested for it. Its container was deleted, or ended with a reboot.
func KeptFor(r *Record, inv call.Invocation) bool {
	if r == nil || r.State != Cooldown || !OfContainer(r.Owner) {
		return false
	}
	last, pod := Status{Rec: r}.LastInvocation(), podOf(inv)
	return pod != "" && pod == podOf(last) && last.IfName == inv.IfName && last.Network == inv.Network && canRequest(inv, r.Addrs())
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
	if op.Rec == nil || op.Rec.State != Cooldown {
		return nil // it was requested again, or is being released
	}
	return op.release()
}
