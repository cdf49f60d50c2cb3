// Package doctor diagnoses the sidecar, its configuration, plugins and node. Its checks read
// Observations and report findings; they change nothing.
package doctor

// Check is a check with its row in docs/operate/doctor.md.
type Check struct {
	// Name is shown with each finding, Finds describes a node without a problem, and Remedy what to do
	// about one.
	Name, Finds, Remedy string
	// run reports the findings, at least one with the state OK without a problem, none if the
	// observations that it needs are missing. It may read more of the node.
	run func(*Observations, *report)
}

// Checks returns all checks, in the order in which they are run and documented.
func Checks() []Check { return checks }

var checks = []Check{
	{
		"sidecar", "The sidecar responds and is ready, and its attachments can be listed.",
		"As the finding says; `delegated-ipam status` shows each pool.",
		checkSidecar,
	},
	{
		"options", "Each option is known, valid and that of the running sidecar.",
		"Correct the option, or restart the sidecar.",
		checkOptions,
	},
	{
		"environment", "doctor has the sidecar's user and mounts, so that both see the same files.",
		"Run it in the sidecar's container (`kubectl exec`), or as its user (`setpriv`).",
		when(hasConfig, checkEnvironment),
	},
	{
		"socket", "Only its owner and group can connect or replace it.",
		"Set --socket-mode=0660, and `chmod go-w` on the directory.",
		when(hasConfig, checkSocket),
	},
	{
		"state-dir", "It is writable, the sidecar's own and durable: not on a tmpfs, in an `emptyDir` or in the container, nor in a directory that Cilium may clean.",
		"Use a directory on the node's disk, owned by the sidecar's user and mounted from the host.",
		when(hasConfig, checkStateDir),
	},
	{
		"disk-space", "16 MiB and 1024 inodes are free for journal and plugin (below: warning), at least 1 MiB and 64 inodes (below: error).",
		"Free space.",
		when(hasConfig, checkDiskSpace),
	},
	{
		"cni-config", "A file gives the pool a network that delegates IPAM. It is a warning while the sidecar continues with an earlier one.",
		"Write the file, or set --cni-conf-dir, --cni-conf-file or --cni-network. If `network` writes it: docs/install/ranges.md.",
		eachPool(nil, checkCNIConfig),
	},
	{
		"plugin", "Addresses can be allocated: the checks of readiness, which the running sidecar repeats. The plugin is executable, permitted by its profile, supports a CNI version of the sidecar and accepts the configuration, which has addresses of an enabled family; no other sidecar serves the network. A warning: pods' program of the plugin accepts what the sidecar refuses.",
		"As the message says. Install a statically linked build with mode 0755; in a pod mount it from the host. A new version may refuse what an older one accepted: correct the line.",
		eachPool(pool.configured, checkPlugin),
	},
	{
		"runtime-gc", "A GC of the container runtime cannot release addresses of the sidecar.",
		"Set `\"disableGC\": true` in the file (docs/reference/plugins.md).",
		eachPool(pool.configured, checkRuntimeGC),
	},
	{
		"netns", "dhcp can release each held address. Otherwise its lease stays until it expires.",
		"Prepare the namespace of --cni-netns (docs/reference/plugins.md, dhcp).",
		eachPool(pool.releasesFromAddress, checkReleases),
	},
	{
		"plugin-files", "The files that the plugin needs by its profile exist.",
		"Create them, or mount them into the sidecar's container.",
		eachPool(pool.known, checkPluginFiles),
	},
	{
		"plugin-state", "The plugin's directory, such as `dataDir` of host-local, is writable and the one that pods use.",
		"Mount the host's directory under its own path, writable.",
		eachPool(pool.known, checkPluginState),
	},
	{
		"store", "The plugin's files can be read, and host-local could have written each. Another file blocks its address; on a pipe host-local hangs.",
		"Run doctor as the sidecar's user. Inspect a foreign file, and remove it.",
		eachPool(pool.known, checkStore),
	},
	{
		"stale-lease-files", "No lease file lacks its container ID. If the program of host-local is killed before it writes one, none of its calls frees the address.",
		"`doctor --repair`",
		eachPool(pool.hasStore, checkStaleLeaseFiles),
	},
	{
		"leases", "Each address of the sidecar is leased to it (otherwise the plugin may allocate it again: error), and no other lease is the sidecar's (a leak: warning).",
		"Missing: let pods and sidecar use one directory; the owner's next request after --verify-interval gets it again. Leaked: `allocate OWNER`, then `release IP`; of `profile try`: run that again, it prints the command.",
		eachPool(pool.hasStore, checkLeases),
	},
	{
		"attachments", "No attachment is lost, outside the present ranges, failing repeatedly or unreadable.",
		"Restart the owner of a lost or outside address (docs/install/ranges.md); otherwise as the finding says.",
		when(hasStatus, checkAttachments),
	},
	{
		"spool", "The DELs that container runtimes could not deliver are carried out, and no file was moved aside.",
		"As the finding says; see docs/install/pods.md, While the sidecar is away.",
		when(usesSpool, checkSpool),
	},
	{
		"ended-containers", "The addresses of containers that ended without a DEL are released.",
		"As the finding says; see docs/install/pods.md, Pods that end without a DEL.",
		when(knowsEndedContainers, checkEndedContainers),
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
