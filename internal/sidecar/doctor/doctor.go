// Package doctor diagnoses the sidecar, its configuration, plugins and node. Its checks read
// Observations and report findings; they change nothing.
package doctor

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
	{"environment", when(hasConfig, checkEnvironment)},
	{"machine-id", when(hasConfig, checkMachineID)},
	{"socket", when(hasConfig, checkSocket)},
	{"state-dir", when(hasConfig, checkStateDir)},
	{"disk-space", when(hasConfig, checkDiskSpace)},
	{"cni-config", eachPool(nil, checkCNIConfig)},
	{"plugin", checkPlugin},
	{"cni-versions", eachPool(pool.executed, checkCNIVersions)},
	{"runtime-gc", eachPool(pool.configured, checkRuntimeGC)},
	{"node-lock", eachPool(pool.configured, checkNodeLock)},
	{"netns", eachPool(pool.known, checkNetNS)},
	{"plugin-files", eachPool(pool.known, checkPluginFiles)},
	{"plugin-state", eachPool(pool.known, checkPluginState)},
	{"store", eachPool(pool.known, checkStore)},
	{"stale-lease-files", eachPool(pool.hasStore, checkStaleLeaseFiles)},
	{"leases", eachPool(pool.hasStore, checkLeases)},
	{"verification", when(hasStatus, checkVerification)},
	{"held-plugins", when(hasStatus, checkHeldPlugins)},
	{"attachments", when(hasStatus, checkAttachments)},
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

func hasConfig(o *Observations) bool { return o.Config != nil }
func hasStatus(o *Observations) bool { return o.Status != nil }

// when runs a check if the observations satisfy a condition.
func when(condition func(*Observations) bool, run func(*Observations, *report)) func(*Observations, *report) {
	return func(o *Observations, r *report) {
		if condition(o) {
			run(o, r)
		}
	}
}

// eachPool runs a check for each pool that satisfies a condition; nil for every pool.
func eachPool(condition func(pool) bool, run func(*Observations, pool, *report)) func(*Observations, *report) {
	return func(o *Observations, r *report) {
		for _, p := range o.pools {
			if condition == nil || condition(p) {
				r.begin(p.name)
				run(o, p, r)
			}
		}
	}
}
