package call

import (
	"github.com/containernetworking/cni/pkg/version"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// HasCheck tells whether the plugin can be asked by CHECK with this context:
// the verb came with CNI 0.4.0, and a conflist may switch it off.
func (c Invocation) HasCheck() bool {
	ok, err := version.GreaterThanOrEqualTo(c.CNIVersion, "0.4.0")
	return err == nil && ok && !c.DisableCheck
}

// HasStatus tells whether the plugin can be asked by STATUS (CNI 1.1.0).
func (c Invocation) HasStatus() bool {
	ok, err := version.GreaterThanOrEqualTo(c.CNIVersion, "1.1.0")
	return err == nil && ok
}

// VerifyBy is how the context's attachment is verified: as its profile says, but
// by nothing where that is CHECK and there is none.
func (c Invocation) VerifyBy() profile.Verify {
	if c.Profile.VerifyBy == profile.VerifyCheck && !c.HasCheck() {
		return profile.VerifyNothing
	}
	return c.Profile.VerifyBy
}
