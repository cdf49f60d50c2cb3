package bridge

import (
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// target is the destination of an action. Consecutive actions on one target are one write.
type target string

const (
	targetSidecar target = "sidecar"
	targetSpec    target = "spec"
	targetStatus  target = "status"
)

func targetOf(k planner.Kind) target {
	switch k {
	case planner.Acquire, planner.Restore, planner.Release:
		return targetSidecar
	case planner.Publish, planner.Cordon, planner.Withdraw:
		return targetSpec
	default: // MarkForRelease, Unmark and MarkReleased
		return targetStatus
	}
}

// patch is a JSON merge patch (RFC 7386) of the pool or of the handshakes.
type patch struct {
	// version is the resourceVersion that the API server must find.
	version string
	target  target
	// entries are the new values by address; nil removes an entry.
	entries map[string]any
}

func newPatch(version string, to target, actions []planner.Action) patch {
	p := patch{version: version, target: to, entries: map[string]any{}}
	for _, a := range actions {
		for _, ip := range a.IPs {
			p.entries[ip.String()] = entryValue(a)
		}
	}
	return p
}

func entryValue(a planner.Action) any {
	switch a.Kind {
	case planner.Publish:
		// null removes the owner that cordons an entry.
		return map[string]any{"resource": planner.EntryOf(a.Slot, false).Resource, "owner": nil}
	case planner.Cordon:
		e := planner.EntryOf(a.Slot, true)
		return map[string]any{"resource": e.Resource, "owner": e.Owner}
	case planner.MarkForRelease:
		return planner.Marked
	case planner.MarkReleased:
		return planner.Released
	default: // Withdraw and Unmark
		return nil
	}
}

func (p patch) subresource() []string {
	if p.target == targetStatus {
		return []string{"status"}
	}
	return nil
}

// body returns the JSON object of the patch. The API server responds with a conflict if the CiliumNode
// has another version.
func (p patch) body() map[string]any {
	field := map[target]string{targetSpec: "pool", targetStatus: "release-ips"}[p.target]
	return map[string]any{
		"metadata":       map[string]any{"resourceVersion": p.version},
		string(p.target): map[string]any{"ipam": map[string]any{field: p.entries}},
	}
}
