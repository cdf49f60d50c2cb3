package lostnodes

import (
	"fmt"
	"strconv"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
)

// maxGeneration bounds the container IDs of an owner that are looked up in a store.
const maxGeneration = 8

// held finds the reservations of nodes in a list of container IDs.
type held struct {
	ids      map[string]bool
	networks []string
	// owners are those that any node may have besides slots.
	owners []string
}

// of returns the owners of a node with a reservation, and the highest generation of their IDs.
func (h held) of(node string) (owners []string, generation int) {
	candidates, _ := Expand(h.owners) // checked with the options
	for slot := range MaxSlots {
		candidates = append(candidates, slotOwner+strconv.Itoa(slot))
	}
	for _, owner := range candidates {
		if g, ok := h.generation(owner, node); ok {
			owners = append(owners, owner)
			generation = max(generation, g)
		}
	}
	return owners, generation
}

// generation returns the highest generation of an owner's IDs with a reservation.
func (h held) generation(owner, node string) (highest int, ok bool) {
	for _, network := range h.networks {
		id := containerid.For(owner, node, network)
		for g := range maxGeneration + 1 {
			if h.ids[containerid.Generation(id, g)] {
				highest, ok = max(highest, g), true
			}
		}
	}
	return highest, ok
}

// check fails if the list cannot be from these nodes: it has container IDs of sidecars, but none of
// a known node; or it has none although pools have slots.
func (h held) check(known History) error {
	ours := 0
	for id := range h.ids {
		if containerid.Match(id) {
			ours++
		}
	}
	filled := 0
	for name, e := range known {
		if owners, _ := h.of(name); len(owners) > 0 {
			return nil
		}
		if e.Slots > 0 && e.AbsentSince.IsZero() {
			filled++
		}
	}
	switch {
	case ours == 0 && filled == 0:
		return nil
	case ours == 0:
		return fmt.Errorf("the plugin's store has no container ID of a sidecar, and the pools of %d nodes have slots; expected the store of these nodes, by --whereabouts-namespace", filled)
	}
	return fmt.Errorf("the plugin's store has %d container IDs of sidecars, and none is that of a known node in the networks %q; expected the names of the networks of the sidecars, by --cni-networks", ours, h.networks)
}
