package bridge

import (
	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// part is what of the outside an action changes. Actions on one part that
// follow one another are one write.
type part int

const (
	none part = iota
	ofSidecar
	ofSpec
	ofStatus
)

func partOf(k planner.Kind) part {
	switch k {
	case planner.Acquire, planner.Restore, planner.Free:
		return ofSidecar
	case planner.Publish, planner.Fence, planner.Withdraw:
		return ofSpec
	case planner.Mark, planner.Clear, planner.Finish:
		return ofStatus
	default:
		return none
	}
}

// patch is a JSON merge patch (RFC 7386) of the pool or of the handshakes.
type patch struct {
	version string
	part    part
	// entries are what a key becomes; nil removes it.
	entries map[string]any
}

func newPatch(version string, of part, actions []planner.Action) patch {
	p := patch{version: version, part: of, entries: map[string]any{}}
	for _, a := range actions {
		for _, ip := range a.IPs {
			p.entries[ip.String()] = written(a)
		}
	}
	return p
}

// written is what the entry of an address becomes.
func written(a planner.Action) any {
	switch a.Kind {
	case planner.Publish:
		// null: what was fenced must not keep its owner.
		return map[string]any{"resource": planner.EntryOf(a.Slot, false).Resource, "owner": nil}
	case planner.Fence:
		e := planner.EntryOf(a.Slot, true)
		return map[string]any{"resource": e.Resource, "owner": e.Owner}
	case planner.Mark:
		return planner.Marked
	case planner.Finish:
		return planner.Released
	default: // Withdraw and Clear remove it
		return nil
	}
}

// subresource is where the API server takes the patch.
func (p patch) subresource() []string {
	if p.part == ofStatus {
		return []string{"status"}
	}
	return nil
}

// body is the patch as JSON takes it. The version makes the API server answer
// with a conflict if anybody has written since.
func (p patch) body() map[string]any {
	body := map[string]any{"metadata": map[string]any{"resourceVersion": p.version}}
	if p.part == ofStatus {
		body["status"] = map[string]any{"ipam": map[string]any{"release-ips": p.entries}}
		return body
	}
	body["spec"] = map[string]any{"ipam": map[string]any{"pool": p.entries}}
	return body
}
