package delegate

import (
	"context"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// Context returns the call context of a new ADD in a network: the IPAM plugin
// is found in the plugin folders and asked for its versions, once for each
// binary. An error is plain when the configuration is at fault or the plugin
// cannot be found, and wraps a *call.Error when VERSION failed.
func (r *Runner) Context(ctx context.Context, n Network, containerID, owner string) (call.Context, error) {
	object, err := n.object()
	if err != nil {
		return call.Context{}, err
	}
	pluginType, err := n.ipamType(object)
	if err != nil {
		return call.Context{}, err
	}
	profiles, err := r.opts.Profiles()
	if err != nil {
		return call.Context{}, fmt.Errorf("network %q: %w", n.Name, err)
	}
	known := profiles.For(pluginType)
	if known.Unsafe != "" && !r.opts.AcceptUnsafe {
		return call.Context{}, fmt.Errorf("network %q: plugin %s is refused because %s; --accept-unsafe-plugin uses it all the same", n.Name, pluginType, known.Unsafe)
	}
	binary, err := r.find(pluginType)
	if err != nil {
		return call.Context{}, fmt.Errorf("network %q: %w", n.Name, err)
	}
	cniVersion, err := r.negotiate(ctx, pluginType, binary)
	if err != nil {
		return call.Context{}, fmt.Errorf("network %q: %w", n.Name, err)
	}
	capabilities, err := n.capabilities(object)
	if err != nil {
		return call.Context{}, err
	}
	config, err := n.configuration(object, cniVersion)
	if err != nil {
		return call.Context{}, err
	}
	netns, err := r.namespace(known, pluginType)
	if err != nil {
		return call.Context{}, fmt.Errorf("network %q: %w", n.Name, err)
	}
	return call.Context{
		ContainerID:  containerID,
		Network:      n.Name,
		CNIVersion:   cniVersion,
		DisableCheck: n.DisableCheck,
		Config:       config,
		Plugin:       pluginType,
		Binary:       binary,
		Path:         strings.Join(r.opts.BinDirs, ":"),
		IfName:       r.opts.IfName,
		NetNS:        netns,
		Args:         contextArgs(known, containerID, owner),
		Capabilities: capabilities,
		Profile:      known,
	}, nil
}

// namespace returns the CNI_NETNS for a plugin: the one that was named, else
// one that the plugin works with. An ephemeral one that cannot be made is
// refused here, before an ADD that could not run is written down.
func (r *Runner) namespace(p profile.Profile, plugin string) (string, error) {
	netns := r.opts.NetNS
	if p.Namespace == profile.NamespaceLink && (netns == "" || netns == EphemeralNetNS) {
		return "", fmt.Errorf("plugin %s works in a network namespace with the interface %s in it; name one that lasts with --cni-netns", p.Type, r.opts.IfName)
	}
	if netns == "" {
		netns = DefaultNetNS
		if p.Namespace == profile.NamespaceEphemeral {
			netns = EphemeralNetNS
		}
	}
	if netns != EphemeralNetNS {
		return netns, nil
	}
	if err := r.probe.try(); err != nil {
		return "", fmt.Errorf("plugin %s is to get a network namespace made for each call (%q), and none can be made: %w; give this process what it lacks, or name another namespace with --cni-netns", plugin, EphemeralNetNS, err)
	}
	return netns, nil
}

// find returns the absolute path of a plugin's executable.
func (r *Runner) find(pluginType string) (string, error) {
	if err := profile.CheckType(pluginType); err != nil {
		return "", fmt.Errorf("ipam.type %q: %w", pluginType, err)
	}
	binary, err := invoke.FindInPath(pluginType, r.opts.BinDirs)
	if err != nil {
		return "", fmt.Errorf("%w; put the plugin there or name its folder with --cni-bin-dir", err)
	}
	return binary, nil
}
