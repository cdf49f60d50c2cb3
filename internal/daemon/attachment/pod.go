package attachment

import (
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
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
			t.previous, t.kept, t.known = other, other.Record.Addrs(), slices.Clone(other.Record.Addresses())
		}
	}
	if len(t.kept) > 0 && len(t.OfRuntime) == 0 {
		unusable := func(a call.Address) bool { return t.excludes(a.Addr()) || t.outside(a.Addr()) }
		t.known = slices.DeleteFunc(t.known, unusable)
		t.Preferred = call.Addrs(t.known)
	}
}
