package trial

import "github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"

// Refusal returns why a plugin with this profile must not be tried; nil if it may.
func Refusal(profile.Profile) error { return nil }
