package poolcheck

import "github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"

// StaleLeaseFiles checks that no file in host-local's store blocks an address without a
// container ID.
var StaleLeaseFiles = check.Check{Name: "stale-lease-files", Run: func(o *check.Observations) []check.Finding {
	var all []check.Finding
	for _, s := range o.KnownStores() {
		if s.IsHostLocal() {
			for _, f := range staleLeaseFiles(s) {
				all = append(all, f.OfPool(s.Pool))
			}
		}
	}
	return all
}}

func staleLeaseFiles(s check.Store) []check.Finding {
	var all []check.Finding
	for _, ip := range s.Removed {
		all = append(all, check.Pass("%s contained no container ID and was removed; address %s is free", s.File(ip), ip).Of(ip))
	}
	for _, ip := range s.Stale {
		all = append(all, check.Warn("`delegated-ipam doctor --repair` removes it",
			"%s contains no container ID: a killed host-local left it, and no CNI call frees address %s", s.File(ip), ip).Of(ip))
	}
	if len(all) == 0 && s.Err == nil {
		all = append(all, check.Pass("%s has no stale lease file", s.Dir))
	}
	return all
}
