// Package doctor diagnoses the sidecar, its configuration, plugins and node. Its checks read
// Observations and report findings; they change nothing.
package doctor

// check is one check.
type check struct {
	// name is shown with each finding and has a row in docs/operate/doctor.md.
	name string
	// run reports the findings, at least one with the state OK without a problem, none if the
	// observations that it needs are missing. It may read more of the node.
	run func(*Observations, *report)
}

// checks are all checks, in the order in which they are run and documented (docs/operate/doctor.md).
var checks = []check{
	{"sidecar", checkSidecar},
	{"options", checkOptions},
	{"environment", withConfig(checkEnvironment)},
	{"machine-id", withConfig(checkMachineID)},
	{"socket", withConfig(checkSocket)},
	{"state-dir", withConfig(checkStateDir)},
	{"disk-space", withConfig(checkDiskSpace)},
	{"cni-config", eachPool(anyPool, checkCNIConfig)},
	{"plugin", checkPlugin},
	{"cni-versions", eachPool(pool.executed, checkCNIVersions)},
	{"runtime-gc", eachPool(pool.configured, checkRuntimeGC)},
	{"node-lock", eachPool(pool.configured, checkNodeLock)},
	{"netns", eachPool(pool.known, checkNetNS)},
	{"plugin-files", eachPool(pool.known, checkPluginFiles)},
	{"plugin-state", eachPool(pool.known, checkPluginState)},
	{"store", eachStore(checkStore)},
	{"stale-lease-files", eachStore(checkStaleLeaseFiles)},
	{"leases", eachStore(checkLeases)},
	{"verification", withStatus(checkVerification)},
	{"held-plugins", withStatus(checkHeldPlugins)},
	{"attachments", withStatus(checkAttachments)},
}

// Diagnose runs all checks and returns their findings, in the order of the checks.
func Diagnose(o *Observations) []Finding {
	r := &report{}
	for _, c := range checks {
		r.check = c.name
		r.begin("")
		c.run(o, r)
	}
	return r.findings
}

// withConfig skips a check without usable options.
func withConfig(run func(*Observations, *report)) func(*Observations, *report) {
	return func(o *Observations, r *report) {
		if o.Config != nil {
			run(o, r)
		}
	}
}

// withStatus skips a check without a response of the sidecar.
func withStatus(run func(*Observations, *report)) func(*Observations, *report) {
	return func(o *Observations, r *report) {
		if o.Status != nil {
			run(o, r)
		}
	}
}

// eachPool runs a check for the pools that satisfy a condition.
func eachPool(condition func(pool) bool, run func(*Observations, pool, *report)) func(*Observations, *report) {
	return func(o *Observations, r *report) {
		for _, p := range o.pools {
			if condition(p) {
				r.begin(p.name)
				run(o, p, r)
			}
		}
	}
}

// eachStore runs a check for the stores of the pools with a network whose configuration can be read:
// without it, the check of the configuration has reported the cause.
func eachStore(run func(*Observations, store, *report)) func(*Observations, *report) {
	return func(o *Observations, r *report) {
		unread := map[string]bool{}
		for _, p := range o.pools {
			unread[p.name] = p.confErr != nil
		}
		for _, s := range o.stores {
			if s.network != "" && !unread[s.pool] {
				r.begin(s.pool)
				run(o, s, r)
			}
		}
	}
}
