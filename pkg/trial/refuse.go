package trial

import "github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"

// ProfileFor returns the profile with which a plugin type is tried. One without a profile is given a
// pod: a plugin that wants one would release nothing without it.
func ProfileFor(set profile.Set, pluginType string) profile.Profile {
	p := set.For(pluginType)
	if p.Type != pluginType {
		p.PodIdentity = profile.PodIdentitySynthetic
	}
	return p
}

// Refusal returns why a plugin with this profile must not be tried; nil if it may.
func Refusal(profile.Profile) error { return nil }
