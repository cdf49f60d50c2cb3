// Package doctor looks at what a sidecar stands on, its own folders and socket, the
// CNI configuration, the plugin and the plugin's files, and compares them with what
// the sidecar says (docs/doctor.md). What was seen is in Sight and what is in it; what
// that means is decided by their findings, which look at nothing.
package doctor

// State is how bad a finding is.
type State string

const (
	// OK: nothing needs to be done.
	OK State = "ok"
	// Warning: something is wasted, and nobody is in danger.
	Warning State = "warning"
	// Error: addresses cannot be handed out or may be given away twice, or it is not
	// known whether that is so.
	Error State = "error"
)

// Check is what was looked at.
type Check string

// The checks, in the order in which they are shown (docs/doctor.md, Checks).
const (
	// CheckSidecar: the sidecar answers and is ready.
	CheckSidecar Check = "sidecar"
	// CheckOptions: the options can be used, and are those of the sidecar.
	CheckOptions Check = "options"
	// CheckPlace: doctor sees what the sidecar sees.
	CheckPlace Check = "place"
	// CheckMachineID: this machine can be told from others.
	CheckMachineID Check = "machine-id"
	// CheckSocket: the socket is for those for whom it should be.
	CheckSocket Check = "socket"
	// CheckStateDir: the journal can be written and lasts.
	CheckStateDir Check = "state-dir"
	// CheckRoom: the journal and the plugin have room left.
	CheckRoom Check = "room"
	// CheckConflist: a network that delegates IPAM is configured.
	CheckConflist Check = "conflist"
	// CheckPlugin: the plugin is there and can be run.
	CheckPlugin Check = "plugin"
	// CheckVersions: plugin and sidecar have a CNI version in common.
	CheckVersions Check = "versions"
	// CheckGC: no GC of the container runtime can free our addresses.
	CheckGC Check = "gc"
	// CheckGuard: no other sidecar serves the same network on this node.
	CheckGuard Check = "guard"
	// CheckNetNS: the plugin is not told to work in our own network namespace.
	CheckNetNS Check = "netns"
	// CheckPluginState: the plugin's folder is that of the pods, and can be written to.
	CheckPluginState Check = "plugin-state"
	// CheckStore: the plugin's store is found and can be read.
	CheckStore Check = "store"
	// CheckEmptyFiles: no file of the store bars an address for nobody.
	CheckEmptyFiles Check = "empty-files"
	// CheckLeases: the store and the sidecar's list have the same addresses.
	CheckLeases Check = "leases"
	// CheckVerification: held attachments are verified as the plugin's profile says.
	CheckVerification Check = "verification"
	// CheckHeldPlugins: the plugins of held attachments can be found.
	CheckHeldPlugins Check = "held-plugins"
	// CheckAttachments: nothing that the sidecar holds is lost or in the plugin's way.
	CheckAttachments Check = "attachments"
)

// Finding is one thing that was seen, and what to do about it.
type Finding struct {
	Check Check `json:"check"`
	// Pool is the pool's name; empty for the sidecar as a whole.
	Pool string `json:"pool,omitempty"`
	// Address is the one that is meant, without a prefix length; empty for none.
	Address string `json:"address,omitempty"`
	State   State  `json:"state"`
	// Seen and Do are for a person; Do is empty if there is nothing to do.
	Seen string `json:"seen"`
	Do   string `json:"do,omitempty"`
}

// Worst returns the worst state among findings; OK if there are none.
func Worst(all []Finding) State {
	worst := OK
	for _, f := range all {
		if f.State == Error || worst == OK {
			worst = f.State
		}
	}
	return worst
}
