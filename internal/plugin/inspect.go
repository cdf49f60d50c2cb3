package plugin

import (
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Inspection is what the profile of a network's plugin says of its configuration.
type Inspection struct {
	// Profile is the profile; empty if it is not known, as is the rest.
	Profile profile.Profile
	// StateDir is the directory of the plugin's state, and StateKey the key of ipam that names it;
	// both are empty if it keeps no state in files.
	StateDir, StateKey string
	// Missing are the required files of the profile of which no path exists, with Paths as the
	// network configures them.
	Missing []profile.Requirement
	// NetNS is CNI_NETNS of calls; empty if there is none.
	NetNS string
}

// Inspect returns what the profile of a network's plugin says of its configuration. It runs nothing.
func (r *Runner) Inspect(n call.Network) (found Inspection) {
	profiles, err := r.opts.Profiles()
	object, objectErr := parsePluginObject(n.PluginConfig)
	if err != nil || objectErr != nil {
		return found
	}
	found.Profile = profiles.For(n.IPAMType)
	found.StateDir, found.StateKey = found.Profile.StateDir(object["ipam"])
	found.Missing = missing(found.Profile.Required(object["ipam"]))
	found.NetNS, _ = r.namespace(found.Profile)
	return found
}

// CheckSockets returns which socket that the profile of a network's plugin requires has no listener, so that no ADD can
// succeed; nil for none.
func (r *Runner) CheckSockets(n call.Network) error {
	for _, m := range r.Inspect(n).Missing {
		if m.Kind == profile.RequireSocket {
			return wrapNetworkErr(n, fmt.Errorf("plugin %s needs the socket %s (ipam.%s names another), on which no process listens: %s", n.IPAMType, m.Paths[0], m.Key, m.Why))
		}
	}
	return nil
}

// missing returns the requirements of which no path exists as what it must be.
func missing(required []profile.Requirement) []profile.Requirement {
	exists := func(r profile.Requirement) bool {
		return slices.ContainsFunc(r.Paths, func(path string) bool { return existsAs(r.Kind, path) })
	}
	return slices.DeleteFunc(slices.Clone(required), exists)
}

// socketTimeout is how long a socket may take to accept a connection. Only one whose queue is full takes any time.
const socketTimeout = time.Second

func existsAs(kind profile.RequirementKind, path string) bool {
	if kind == profile.RequireSocket {
		c, err := net.DialTimeout("unix", path, socketTimeout)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir() == (kind == profile.RequireDirectory)
}
