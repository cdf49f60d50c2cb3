package doctor

import (
	"testing"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// found returns the findings of a check of a status.
func found(check func(*Observations, *report), s models.DelegatedIPAMStatus) []Finding {
	r := &report{}
	check(&Observations{Status: &s}, r)
	return r.findings
}

func TestFreeAddresses(t *testing.T) {
	of := func(all ...*models.PoolAddresses) []Finding {
		return runPool("free-addresses", func(p *pool) { p.status.Addresses = all })
	}
	with := func(family string, free float64) *models.PoolAddresses {
		return &models.PoolAddresses{Family: family, Total: new(253.0), Free: &free, Used: 253 - free}
	}
	runCases(t, map[string]testCase{
		"enough":   {of(with("ipv4", 26), with("ipv6", 253)), states(ok), []string{"each family"}},
		"few":      {of(with("ipv4", 25)), states(warning), []string{"25 of 253 ipv4 addresses", "extend the range"}},
		"none":     {of(with("ipv4", 26), with("ipv6", 0)), states(failed), []string{"all 253 ipv6 addresses are used"}},
		"unknown":  {of(&models.PoolAddresses{Family: "ipv4", Used: 3}), nil, nil},
		"no count": {of(), nil, nil},
	})
}

func TestCheckEndedContainers(t *testing.T) {
	old := strfmt.DateTime(time.Now().Add(-time.Hour))
	hidden := []string{"/run/netns"}
	of := func(e *models.EndedContainers) []Finding {
		return found(checkEndedContainers, models.DelegatedIPAMStatus{EndedContainers: e})
	}
	runCases(t, map[string]testCase{
		"older daemon":             {of(nil), nil, nil},
		"none":                     {of(&models.EndedContainers{DelaySeconds: 600}), nil, nil},
		"released later":           {of(&models.EndedContainers{DelaySeconds: 600, Pending: 2, Oldest: &old}), states(ok), []string{"2 containers ended without a DEL, the first for 1h0m0s; they are released after 10m0s"}},
		"never released":           {of(&models.EndedContainers{Pending: 2, Oldest: &old}), states(warning), []string{"and keep their addresses"}},
		"hidden":                   {of(&models.EndedContainers{DelaySeconds: 600, HiddenDirectories: hidden}), states(warning), []string{"in /run/netns cannot be seen"}},
		"hidden, and never":        {of(&models.EndedContainers{HiddenDirectories: hidden}), nil, nil},
		"hidden, but runtime asks": {of(&models.EndedContainers{DelaySeconds: 600, HiddenDirectories: hidden, Runtime: "containerd v2.4.2"}), nil, nil},
		"hidden, runtime silent":   {of(&models.EndedContainers{DelaySeconds: 600, HiddenDirectories: hidden, Runtime: "containerd v2.4.2", Reported: &old}), states(warning), []string{"in /run/netns cannot be seen"}},
	})
}

func TestCheckSpool(t *testing.T) {
	now, old := strfmt.DateTime(time.Now()), strfmt.DateTime(time.Now().Add(-time.Hour))
	of := func(s *models.SpoolStatus) []Finding { return found(checkSpool, models.DelegatedIPAMStatus{Spool: s}) }
	runCases(t, map[string]testCase{
		"older daemon":  {of(nil), nil, nil},
		"empty":         {of(&models.SpoolStatus{Directory: "/s"}), nil, nil},
		"new":           {of(&models.SpoolStatus{Directory: "/s", Pending: 1, Oldest: &now}), states(ok), []string{"1 DELs of containers wait in /s"}},
		"old":           {of(&models.SpoolStatus{Directory: "/s", Pending: 2, Oldest: &old, Error: "the server is away"}), states(warning), []string{"the oldest for 1h0m0s: the server is away"}},
		"foreign files": {of(&models.SpoolStatus{Directory: "/s", Quarantined: 3}), states(warning), []string{"3 files of the spool were moved aside"}},
		"unusable":      {of(&models.SpoolStatus{Error: "its mode is 0755"}), states(warning), []string{"the spool: its mode is 0755"}},
	})
}
