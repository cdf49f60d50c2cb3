// Package poolcheck has the checks of doctor for the pools and their plugins, one in each
// file.
package poolcheck

import (
	"errors"
	"io/fs"
	"os"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// CNIConfig checks that each pool has a network that delegates IPAM.
var CNIConfig = check.Check{Name: "cni-config", Run: func(o *check.Observations) []check.Finding {
	var all []check.Finding
	for _, p := range o.Pools {
		all = append(all, cniConfig(p, o.Config.Conf.File))
	}
	return all
}}

func cniConfig(p check.Pool, onlyFile string) check.Finding {
	switch {
	case p.ConfErr == nil:
		return p.Pass("%s: network %q delegates to %s", p.Network.File, p.Network.Name, p.Network.IPAMType)
	case p.Served != "":
		return p.Warn("fix the file before the next start of the sidecar",
			"the sidecar continues with network %q as last read, but a start would find none, so its plugin was not checked: %s", p.Served, p.ConfErr)
	}
	if _, err := os.Stat(onlyFile); onlyFile != "" && errors.Is(err, fs.ErrNotExist) {
		return p.Fail("write the file. If delegated-ipam-network writes it: `curl http://127.0.0.1:9968/readyz` on the node has the reason, such as a Node without podCIDRs (docs/install/ranges.md, Not ready)", "%s", p.ConfErr)
	}
	return p.Fail("write the CNI configuration, or set --cni-conf-dir, --cni-conf-file or --cni-network", "%s", p.ConfErr)
}
