package delegate

import (
	"context"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// NewInvocation returns the invocation of a new ADD in a network: the IPAM plugin
// is found in the plugin folders and asked for its versions, once for each
// binary. An error names file and network. It is plain when the configuration is at
// fault or the plugin cannot be found, and wraps a *call.Error when VERSION failed;
// what is returned with it has Plugin and Profile as far as they are known, for
// people, and is nothing to call with.
func (r *Runner) NewInvocation(ctx context.Context, n call.Network, containerID, owner string) (call.Invocation, error) {
	object, err := parseNetwork(n)
	if err != nil {
		return call.Invocation{}, wrapNetworkErr(n, err)
	}
	pluginType, err := object.ipamType()
	if err != nil {
		return call.Invocation{}, wrapNetworkErr(n, err)
	}
	c := call.Invocation{Plugin: pluginType}
	profiles, err := r.opts.Profiles()
	if err != nil {
		return c, wrapNetworkErr(n, err)
	}
	c.Profile = profiles.For(pluginType)
	usable, err := r.complete(ctx, c, n, object)
	if err != nil {
		return c, wrapNetworkErr(n, err)
	}
	usable.ContainerID, usable.Args = containerID, contextArgs(c.Profile, containerID, owner)
	return usable, nil
}

// complete adds to a context, which has plugin and profile, all that is the same
// for every attachment.
func (r *Runner) complete(ctx context.Context, c call.Invocation, n call.Network, object pluginObject) (call.Invocation, error) {
	var err error
	if c.Profile.Unsafe != "" && !r.opts.AcceptUnsafe {
		return c, fmt.Errorf("plugin %s is refused because %s; --accept-unsafe-plugin uses it all the same", c.Plugin, c.Profile.Unsafe)
	}
	if c.Binary, err = r.find(c.Plugin); err != nil {
		return c, fmt.Errorf("ipam.type %q: %w", c.Plugin, err)
	}
	if c.CNIVersion, err = r.negotiate(ctx, c.Plugin, c.Binary); err != nil {
		return c, fmt.Errorf("ipam.type %q: %w", c.Plugin, err)
	}
	if c.Capabilities, err = object.capabilities(); err != nil {
		return c, err
	}
	if err := r.checkStateDir(c.Profile, object); err != nil {
		return c, err
	}
	if c.Config, err = object.networkConfig(n.Name, c.CNIVersion); err != nil {
		return c, err
	}
	if c.NetNS, err = r.namespace(c.Profile, c.Plugin); err != nil {
		return c, err
	}
	c.Network, c.DisableCheck = n.Name, n.DisableCheck
	c.Path, c.IfName = strings.Join(r.opts.BinDirs, ":"), r.opts.IfName
	return c, nil
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
		return "", err
	}
	binary, err := invoke.FindInPath(pluginType, r.opts.BinDirs)
	if err != nil {
		return "", fmt.Errorf("%w; put the plugin there or name its folder with --cni-bin-dir", err)
	}
	return binary, nil
}
