// Package doctor diagnoses the sidecar, its configuration, plugins and node. Its checks
// read Observations (package check); each is declared in one file of nodecheck or poolcheck
// and registered here.
package doctor

import (
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/nodecheck"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/poolcheck"
)

// checks are all checks, in the order in which they are run and documented (docs/operate/doctor.md).
var checks = []check.Check{
	nodecheck.Sidecar,
	nodecheck.Options,
	nodecheck.Environment,
	nodecheck.MachineID,
	nodecheck.Socket,
	nodecheck.StateDir,
	nodecheck.DiskSpace,
	poolcheck.CNIConfig,
	poolcheck.Plugin,
	poolcheck.CNIVersions,
	poolcheck.RuntimeGC,
	poolcheck.NodeLock,
	poolcheck.NetNS,
	poolcheck.PluginFiles,
	poolcheck.PluginState,
	poolcheck.Store,
	poolcheck.StaleLeaseFiles,
	poolcheck.Leases,
	poolcheck.Verification,
	nodecheck.HeldPlugins,
	nodecheck.Attachments,
}

// Diagnose runs all checks and returns their findings, in the order of the checks.
func Diagnose(o *check.Observations) []check.Finding { return check.Run(checks, o) }
