package poolcheck

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

func ips(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// runStore runs a check with the store of host-local of one pool, with a change.
func runStore(c check.Check, change func(*check.Store)) []check.Finding {
	s := check.Store{Pool: "default", Network: "pods", Plugin: "host-local", Dir: "/data/pods"}
	change(&s)
	return c.Run(&check.Observations{Stores: []check.Store{s}})
}

func TestStore(t *testing.T) {
	unexpected := ips("10.15.0.3", "10.15.0.4")
	runCases(t, map[string]testCase{
		"readable":         {runStore(Store, func(*check.Store) {}), states(ok), []string{"/data/pods"}},
		"unexpected files": {runStore(Store, func(s *check.Store) { s.Unexpected = unexpected }), states(warning, warning), []string{"/data/pods/10.15.0.3", "/data/pods/10.15.0.4"}},
		"unreadable":       {runStore(Store, func(s *check.Store) { s.Err = errors.New("I/O error") }), states(failed), []string{"I/O error"}},
		"other plugin":     {runStore(Store, func(s *check.Store) { s.Plugin = "static" }), states(ok), []string{"not checked", "static"}},
		"no network":       {runStore(Store, func(s *check.Store) { s.Network = "" }), nil, nil},
	})
}

func TestStaleLeaseFiles(t *testing.T) {
	run := func(change func(*check.Store)) []check.Finding { return runStore(StaleLeaseFiles, change) }
	runCases(t, map[string]testCase{
		"none":         {run(func(*check.Store) {}), states(ok), []string{"/data/pods"}},
		"two":          {run(func(s *check.Store) { s.Stale = ips("10.15.0.3", "fd00::3") }), states(warning, warning), []string{"/data/pods/10.15.0.3", "/data/pods/fd00::3", "--repair"}},
		"removed":      {run(func(s *check.Store) { s.Removed = ips("10.15.0.3") }), states(ok), []string{"was removed"}},
		"unreadable":   {run(func(s *check.Store) { s.Err = errors.New("no") }), nil, nil},
		"other plugin": {run(func(s *check.Store) { s.Plugin = "static" }), nil, nil},
	})
}
