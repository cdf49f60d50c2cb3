package call

import (
	"fmt"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// CapabilityIPs is the capability without which runtimeConfig.ips must not be
// sent (CNI CONVENTIONS.md, "Dynamic Plugin specific fields").
const CapabilityIPs = "ips"

// Convention returns the first convention of the context's profile by which one
// ADD can ask for n addresses, or why there is none. An ADD that asks for
// addresses of which only some can be carried would get others instead.
func (c Invocation) Convention(n int) (profile.Request, error) {
	for _, r := range c.Profile.Requests {
		switch {
		case r == profile.RequestRuntimeConfig && !slices.Contains(c.Capabilities, CapabilityIPs):
		case r == profile.RequestCNIArgs && n != 1:
			// CNI_ARGS has no agreed form for a list: host-local reads one address.
		default:
			return r, nil
		}
	}
	return "", fmt.Errorf("its profile honours %q, the configuration declares the capabilities %q, and none of them carries %d", c.Profile.Requests, c.Capabilities, n)
}
