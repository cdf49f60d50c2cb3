// Package crdagent has the rules by which cilium-agent in ipam mode crd handles the release of an
// address (docs/design/bridge.md, Behaviour of the agent). Each imitation of the agent in tests uses
// them, and test/allocator compares them with Cilium's code.
package crdagent

// Answer returns the state of a release handshake after the agent has read the CiliumNode; empty if the
// agent removes it. published reports whether the address is in the pool, allocated whether the agent has
// allocated it.
func Answer[H ~string](state H, published, allocated bool) H {
	switch {
	case state == "released" && !published:
		return ""
	case state == "marked-for-release" && (!published || allocated):
		return "do-not-release"
	case state == "marked-for-release":
		return "ready-for-release"
	}
	return state
}

// Allocatable reports whether the agent allocates or restores an address with this state of its release.
func Allocatable[H ~string](state H) bool { return state == "" || state == "do-not-release" }
