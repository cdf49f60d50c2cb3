package poolcheck

import (
	"cmp"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// Store checks that the store of each pool's plugin can be read and has no unexpected
// files. Only host-local's store is known.
var Store = check.Check{Name: "store", Run: func(o *check.Observations) []check.Finding {
	var all []check.Finding
	for _, s := range o.KnownStores() {
		for _, f := range store(s) {
			all = append(all, f.OfPool(s.Pool))
		}
	}
	return all
}}

func store(s check.Store) []check.Finding {
	if !s.IsHostLocal() {
		return []check.Finding{check.Pass("the store is not checked: only the files of host-local are known, and the plugin is %s", cmp.Or(s.Plugin, "unknown"))}
	}
	var all []check.Finding
	for _, ip := range s.Unexpected {
		all = append(all, check.Warn("inspect and remove it",
			"%s is not a file that host-local creates: it blocks address %s, and host-local can hang on it", s.File(ip), ip).Of(ip))
	}
	if s.Err != nil {
		all = append(all, check.Fail("run doctor as the sidecar's user and with its mounts; if the file is faulty, fix it", "%s", s.Err))
	}
	if len(all) == 0 {
		all = append(all, check.Pass("%s has %d leases", s.Dir, len(s.Leases)))
	}
	return all
}
