package restapi

import (
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// Report is how the process is, as far as the attachments do not tell it.
type Report struct {
	// Version is that of this program.
	Version string
	// NodeName is the node's name, as new container IDs are made from it.
	NodeName string
	// Started is when this process started.
	Started time.Time
	// Ready tells whether addresses can be handed out.
	Ready bool
	// Since is since when it is ready, or is not.
	Since time.Time
	// Reasons say why it is not ready; empty if it is.
	Reasons []string
	// Pools are all pools, in the order in which they are to be shown.
	Pools []PoolReport
	// MovedPlugins are those whose executables recorded attachments name and which do not
	// exist any more.
	MovedPlugins []MovedPlugin
	// Quarantined are the records that were put aside.
	Quarantined []Quarantined
	// Counters are counts since the start of the process, by name.
	Counters map[string]int64
	// LastError is the last failure in this life of the process; without a text there was none.
	LastError LastError
	// Options are the options of the process, by name.
	Options []OptionValue
}

// OptionValue is one option of serve.
type OptionValue struct {
	// Name is that of the flag, Value what it takes.
	Name, Value string
	// Source is where the value came from: flag, environment, config-dir or default.
	Source string
}

// LastError is a failure of work on an attachment or, without an owner, of the process.
type LastError struct {
	// Text is what went wrong, At when.
	Text string
	At   time.Time
	// Owner, Pool and ContainerID name the attachment.
	Owner, Pool, ContainerID string
}

// PoolReport is one pool and the plugin behind it. Fields that are not known
// yet are empty.
type PoolReport struct {
	Pool string
	// Network is the name of the CNI network configuration in use, File where it was read.
	Network, File string
	// Plugin is the type of the IPAM plugin, Binary its absolute path.
	Plugin, Binary string
	// CNIVersion is the negotiated CNI version.
	CNIVersion string
	// PluginVersions are the CNI versions that the plugin says it knows.
	PluginVersions []string
	// Profile is what is known of the plugin.
	Profile profile.Profile
	// Verification is how held attachments are verified; its By is empty if not known.
	Verification Verification
	// NotReady is why the plugin says that it cannot serve now (STATUS of CNI
	// 1.1.0); empty if it can, or cannot be asked.
	NotReady string
	// Error says why the present configuration cannot be used; empty if it can. With
	// a Plugin it means that an older configuration is still in use.
	Error string
	// Since is since when all this is so; zero if not known.
	Since time.Time
}

// Verification is how the held attachments of a pool are verified.
type Verification struct {
	// By is lookup, check, add or nothing.
	By string
	// Reason is why it is not lookup although the plugin's store could be read, or what
	// lookup waits for; empty for neither.
	Reason string
}

// MovedPlugin is a plugin whose executable does not exist where attachments recorded it.
type MovedPlugin struct {
	// Pool is the attachments' pool.
	Pool string
	// Plugin is the plugin's type, Binary the recorded path of its executable, and
	// Executable the one that is used instead.
	Plugin, Binary, Executable string
	// Error is why there is none; empty if there is.
	Error string
}

// Quarantined is one record that could not be read.
type Quarantined struct {
	// File is where it is now, Reason what is wrong with it.
	File, Reason string
	// Since is when it was put aside, or found; zero if not known.
	Since time.Time
}
