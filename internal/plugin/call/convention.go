package call

import (
	"fmt"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// CapabilityIPs is the capability without which runtimeConfig.ips must not be
// sent (CNI CONVENTIONS.md, "Dynamic Plugin specific fields").
const CapabilityIPs = "ips"

// Convention returns the first convention of the invocation's profile by which one ADD can request
// n addresses, or why there is none. A convention that can carry only some of them is not used: the
// ADD would return others instead.
func (inv Invocation) Convention(n int) (profile.Request, error) {
	for _, r := range inv.Profile.Requests {
		switch {
		case r == profile.RequestRuntimeConfig && !slices.Contains(inv.Capabilities, CapabilityIPs):
		case r == profile.RequestCNIArgs && n != 1:
			// CNI_ARGS has no agreed form for a list: host-local reads one address.
		default:
			return r, nil
		}
	}
	return "", fmt.Errorf("its profile honours %q, the configuration declares the capabilities %q, and none of them carries %d", inv.Profile.Requests, inv.Capabilities, n)
}
