package httpapi

import (
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Report is the state of the process without its attachments.
type Report struct {
	// Version is the version of the program.
	Version string
	// NodeName is the node name from which new container IDs are computed.
	NodeName string
	// Started is the start time of the process.
	Started time.Time
	// Ready reports whether addresses can be allocated.
	Ready bool
	// Since is the time of the last change of Ready.
	Since time.Time
	// Reasons explain why the sidecar is not ready; empty if it is.
	Reasons []string
	// Pools are all pools, in the order of the status.
	Pools []PoolReport
	// MovedPlugins are the plugins whose executables are recorded in attachments and no longer
	// exist.
	MovedPlugins []MovedPlugin
	// Quarantined are the quarantined records.
	Quarantined []Quarantined
	// Counters are the counters since the start of the process, by name.
	Counters map[string]int64
	// LastError is the last failure since the start of the process; its Text is empty if there
	// was none.
	LastError LastError
	// Options are the options of the process, by name.
	Options []OptionValue
}

// OptionValue is one option of serve.
type OptionValue struct {
	// Name is the name of the flag, Value the value in use.
	Name, Value string
	// Source is where the value was set: flag, environment, config-dir or default.
	Source string
}

// LastError is a failed operation on an attachment or, without an owner, a failure of the
// process.
type LastError struct {
	// Text is the error, At its time.
	Text string
	At   time.Time
	// Owner, Pool and ContainerID identify the attachment.
	Owner, Pool, ContainerID string
}

// PoolReport is the state of a pool and its plugin. Fields that are not known yet are empty.
type PoolReport struct {
	Pool string
	// Network is the name of the CNI network configuration in use, File the file with it.
	Network, File string
	// Plugin is the type of the IPAM plugin, Binary its absolute path.
	Plugin, Binary string
	// CNIVersion is the negotiated CNI version.
	CNIVersion string
	// PluginVersions are the CNI versions that the plugin supports (VERSION).
	PluginVersions []string
	// Profile is the profile of the plugin.
	Profile profile.Profile
	// Verification is how held attachments are verified; its By is empty if not known.
	Verification Verification
	// NotReady is the plugin's reason for not being ready (STATUS of CNI 1.1.0); empty if it
	// is ready or has no STATUS.
	NotReady string
	// Error is why the current configuration cannot be used; empty if it can. With a Plugin,
	// an older configuration is still in use.
	Error string
	// Since is the time of the last change of the state; zero if not known.
	Since time.Time
}

// Verification is how the held attachments of a pool are verified.
type Verification struct {
	// By is lookup, check, add or nothing.
	By string
	// Reason is why By is not lookup although the plugin's store is readable, or why lookup has
	// to wait; empty for neither.
	Reason string
}

// MovedPlugin is a plugin whose executable no longer has the path that attachments recorded.
type MovedPlugin struct {
	// Pool is the pool of the attachments.
	Pool string
	// Plugin is the type of the plugin, Binary the recorded path of its executable, and
	// Executable the path in use instead.
	Plugin, Binary, Executable string
	// Error is why no executable was found; empty if one was.
	Error string
}

// Quarantined is a record that could not be read.
type Quarantined struct {
	// File is its path in the quarantine, Reason the error.
	File, Reason string
	// Since is when it was quarantined, or found there; zero if not known.
	Since time.Time
	// Version is the format version of a record that only a newer version of the program
	// understands, and that is not in the quarantine; 0 for any other.
	Version int
}
