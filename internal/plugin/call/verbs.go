package call

import (
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// The verbs of a plugin call, as in CNI_COMMAND and Error.Verb (CNI spec 1.1.0, section 2).
const (
	VerbAdd     = "ADD"
	VerbDel     = "DEL"
	VerbCheck   = "CHECK"
	VerbStatus  = "STATUS"
	VerbVersion = "VERSION"
	VerbGC      = "GC"
)

// HasCheck reports whether CHECK may be called with the invocation: the verb exists since CNI
// 0.4.0, and a conflist may disable it.
func (inv Invocation) HasCheck() bool {
	return inv.AtLeast("0.4.0") && !inv.DisableCheck
}

// HasStatus reports whether STATUS is called with the invocation: the verb exists since CNI 1.1.0,
// and of some plugins it always succeeds.
func (inv Invocation) HasStatus() bool {
	return inv.AtLeast("1.1.0") && inv.Profile.HasStatus()
}

// HasGC reports whether the CNI version of the calls has GC.
func (inv Invocation) HasGC() bool { return inv.AtLeast("1.1.0") }

// AtLeast reports whether the CNI version of the calls is want or later. One that cannot be parsed is
// earlier than any.
func (inv Invocation) AtLeast(want string) bool {
	ok, err := version.GreaterThanOrEqualTo(inv.CNIVersion, want)
	return err == nil && ok
}

// VerifyBy returns how the invocation's attachment is verified: as its profile says, but by nothing
// where that is CHECK and there is none, or where it is ADD and no container ID may be used twice.
// Profiles of that kind are refused today, but records have them: azure-ipam releases the address in
// use if such an ADD fails (docs/reference/plugins.md, azure-ipam).
func (inv Invocation) VerifyBy() profile.Verify {
	by := inv.Profile.VerifyBy
	if by == profile.VerifyCheck && !inv.HasCheck() || by == profile.VerifyAdd && inv.Profile.SingleUseIDs() {
		return profile.VerifyNothing
	}
	return by
}

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
