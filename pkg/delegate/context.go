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
	known := r.opts.Profiles.For(pluginType)
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
	netns, err := r.namespace(known)
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
// one that the plugin works with.
func (r *Runner) namespace(p profile.Profile) (string, error) {
	if p.Namespace == profile.NamespaceLink && (r.opts.NetNS == "" || r.opts.NetNS == EphemeralNetNS) {
		return "", fmt.Errorf("plugin %s works in a network namespace with the interface %s in it; name one that lasts with --cni-netns", p.Type, r.opts.IfName)
	}
	switch {
	case r.opts.NetNS != "":
		return r.opts.NetNS, nil
	case p.Namespace == profile.NamespaceEphemeral:
		return EphemeralNetNS, nil
	default:
		return DefaultNetNS, nil
	}
}

// find returns the absolute path of a plugin's executable.
func (r *Runner) find(pluginType string) (string, error) {
	if err := checkType(pluginType); err != nil {
		return "", err
	}
	binary, err := invoke.FindInPath(pluginType, r.opts.BinDirs)
	if err != nil {
		return "", fmt.Errorf("%w; put the plugin there or name its folder with --cni-bin-dir", err)
	}
	return binary, nil
}
