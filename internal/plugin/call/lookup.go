package call

import (
	"errors"
	"fmt"
)

// ErrNoLookup is wrapped by every LookupError: the allocations of the plugin are unknown, and only
// its verbs can report them.
var ErrNoLookup = errors.New("lookup in the plugin's store failed")

// LookupError is a lookup that found out nothing. It wraps ErrNoLookup.
type LookupError struct {
	// Plugin is the plugin's type, Network the name of the network.
	Plugin, Network string
	// ContainerID is the attachment's container ID.
	ContainerID string
	// Err is the reason.
	Err error
}

// Error returns a text with plugin, network, container ID and reason.
func (e *LookupError) Error() string {
	return fmt.Sprintf("lookup of container ID %s in network %q of plugin %s: %v", e.ContainerID, e.Network, e.Plugin, e.Err)
}

// Unwrap returns ErrNoLookup and the reason.
func (e *LookupError) Unwrap() []error { return []error{ErrNoLookup, e.Err} }
