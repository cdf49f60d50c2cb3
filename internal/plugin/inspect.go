package plugin

import (
	"context"
	"net"
	"os"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Inspection is what NewInvocation finds out about a network, step by step, so that a step that
// fails does not hide the others.
type Inspection struct {
	// Plugin is the plugin's type, and Profile its profile; both are empty if the configuration
	// does not name it.
	Plugin  string
	Profile profile.Profile
	// Embedded is why the calls are made in this process; empty if Binary, the plugin's executable, is run. FindErr is
	// why it was not found, and ProgramErr is that of ProgramDiffers.
	Embedded, Binary    string
	FindErr, ProgramErr error
	// Versions are the CNI versions that the plugin supports, and CNIVersion the one of its calls;
	// VersionErr is why there is none. It wraps a *call.Error if VERSION failed.
	Versions   []string
	CNIVersion string
	VersionErr error
	// StateDir is the directory of the plugin's state, and StateKey the key of ipam that names it;
	// both are empty if it keeps no state in files. StateErr is why NewInvocation refuses it.
	StateDir, StateKey string
	StateErr           error
	// Missing are the required files of the profile of which no path exists, with Paths as the
	// network configures them.
	Missing []profile.Requirement
	// NetNS is CNI_NETNS of calls; NetNSErr is why there is none.
	NetNS    string
	NetNSErr error
	// Err is the error of NewInvocation; nil if an ADD is possible.
	Err error
	// ConfigErr is the error of CheckConfig, AddressErr that of CheckAddresses.
	ConfigErr, AddressErr error
}

// Inspect takes the steps of NewInvocation for a network, CheckConfig and CheckAddresses. It runs no other verb than
// VERSION and the CHECK of CheckConfig.
func (r *Runner) Inspect(ctx context.Context, n call.Network) Inspection {
	inv, err := r.NewInvocation(ctx, n, "", "")
	found := Inspection{Plugin: inv.Plugin, Profile: inv.Profile, Err: err}
	if err == nil {
		found.ConfigErr, found.AddressErr = r.CheckConfig(ctx, n, inv), r.CheckAddresses(n, inv)
		found.ProgramErr = r.ProgramDiffers(ctx, n, inv)
	}
	object, err := parsePluginObject(n.PluginConfig)
	if err != nil || found.Profile.Type == "" {
		return found
	}
	if found.Embedded = r.Embedded(found.Plugin); found.Embedded != "" {
		found.CNIVersion, found.Versions = version.Current(), version.All.SupportedVersions()
	} else if found.Binary, found.FindErr = r.findPlugin(found.Plugin); found.FindErr == nil {
		found.CNIVersion, found.VersionErr = r.negotiate(ctx, found.Plugin, found.Binary)
		found.Versions = r.Versions(found.Binary)
	}
	found.StateDir, found.StateKey = found.Profile.StateDir(object["ipam"])
	found.StateErr = r.checkHostDirs(found.Profile, object)
	found.Missing, _ = r.Missing(n)
	found.NetNS, found.NetNSErr = r.namespace(found.Profile)
	return found
}

// Missing returns the required files, directories and sockets of a network's profile of which no path exists as what it
// must be, with Paths as the network configures them.
func (r *Runner) Missing(n call.Network) ([]profile.Requirement, error) {
	profiles, err := r.opts.Profiles()
	if err != nil {
		return nil, err
	}
	object, err := parsePluginObject(n.PluginConfig)
	if err != nil {
		return nil, err
	}
	exists := func(req profile.Requirement) bool {
		return slices.ContainsFunc(req.Paths, func(path string) bool { return existsAs(req.Kind, path) })
	}
	return slices.DeleteFunc(profiles.For(n.IPAMType).Required(object["ipam"]), exists), nil
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
