// Package doctor diagnoses the daemon, its configuration, plugins and node. Its checks read
// Observations and report findings; they change nothing.
package doctor

// Check is a check with its row in docs/operate/doctor.md.
type Check struct {
	// Name is shown with each finding, and Finds describes a node without a problem. A finding has its remedy.
	Name, Finds string
	// run reports the findings, at least one with the state OK without a problem, none if the
	// observations that it needs are missing. It may read more of the node.
	run func(*Observations, *report)
}

// Checks returns all checks, in the order in which they are run and documented.
func Checks() []Check { return checks }

var checks = []Check{
	{
		"daemon", "The daemon responds and is ready, and its attachments can be listed.",
		checkDaemon,
	},
	{
		"options", "Each option is known, valid and that of the running daemon.",
		checkOptions,
	},
	{
		"environment", "doctor has the daemon's user and mounts, so that both see the same files.",
		when(hasConfig, checkEnvironment),
	},
	{
		"socket", "Only its owner and group can connect or replace it.",
		when(hasConfig, checkSocket),
	},
	{
		"state-dir", "It is writable, the daemon's own and durable: not on a tmpfs, in an `emptyDir` or in the container, nor in a directory that Cilium may clean.",
		when(hasConfig, checkStateDir),
	},
	{
		"disk-space", "16 MiB and 1024 inodes are free for journal and plugin (below: warning), at least 1 MiB and 64 inodes (below: error).",
		when(hasConfig, checkDiskSpace),
	},
	{
		"cni-config", "A file gives the pool a network that delegates IPAM. A warning: no option names the network, and it is not Cilium's.",
		eachPool(nil, checkCNIConfig),
	},
	{
		"plugin", "The checks of readiness: the plugin is executable, permitted by its profile, supports a CNI version of the daemon and accepts the configuration, which has addresses of an enabled family; no other daemon serves the network.",
		eachPool(pool.configured, checkPlugin),
	},
	{
		"runtime-gc", "A GC of the container runtime cannot release addresses of the daemon.",
		eachPool(pool.configured, checkRuntimeGC),
	},
	{
		"netns", "dhcp can release each held address.",
		eachPool(pool.releasesFromAddress, checkReleases),
	},
	{
		"plugin-files", "The files that the plugin needs by its profile exist.",
		eachPool(pool.known, checkPluginFiles),
	},
	{
		"plugin-state", "The plugin's directory, such as `dataDir` of host-local, is writable and the one that pods use.",
		eachPool(pool.known, checkPluginState),
	},
	{
		"store", "The plugin's files can be read, and host-local could have written each.",
		eachPool(pool.known, checkStore),
	},
	{
		"stale-lease-files", "No lease file lacks its container ID, as one of a killed host-local does.",
		eachPool(pool.hasStore, checkStaleLeaseFiles),
	},
	{
		"leases", "Each address of the daemon is leased to it (otherwise the plugin may allocate it again: error), and no other lease is the daemon's (a leak: warning).",
		eachPool(pool.hasStore, checkLeases),
	},
	{
		"free-addresses", "At least a tenth of the addresses of each range is free (none: error).",
		eachPool(pool.configured, checkFreeAddresses),
	},
	{
		"attachments", "No attachment is lost, outside the present ranges, failing repeatedly or unreadable.",
		when(hasStatus, checkAttachments),
	},
	{
		"spool", "The DELs that container runtimes could not deliver are carried out, and no file was moved aside.",
		when(hasStatus, checkSpool),
	},
	{
		"ended-containers", "The addresses of containers that ended without a DEL are released.",
		when(hasStatus, checkEndedContainers),
	},
}

// Diagnose runs all checks and returns their findings, in the order of the checks.
func Diagnose(o *Observations) []Finding {
	r := &report{}
	for _, c := range checks {
		r.check = c.Name
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
