package doctor

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

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
