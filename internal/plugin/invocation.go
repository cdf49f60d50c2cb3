package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// NewInvocation returns the invocation of a new ADD in a network. It finds the IPAM plugin in the
// plugin directories, and runs its VERSION, once per binary. An error names file and network. It wraps
// a *call.Error if VERSION failed; any other error is a fault of the configuration, or a plugin
// that does not exist. The invocation returned with an error cannot be called with, but has Plugin
// and Profile as far as they are known, for display.
func (r *Runner) NewInvocation(ctx context.Context, n call.Network, containerID, owner string) (call.Invocation, error) {
	object, err := parseNetwork(n)
	if err != nil {
		return call.Invocation{}, wrapNetworkErr(n, err)
	}
	pluginType, err := object.ipamType()
	if err != nil {
		return call.Invocation{}, wrapNetworkErr(n, err)
	}
	known := call.Invocation{Plugin: pluginType}
	profiles, err := r.opts.Profiles()
	if err != nil {
		return known, wrapNetworkErr(n, err)
	}
	known.Profile = profiles.For(pluginType)
	inv, err := r.fillInvocation(ctx, known, n, object)
	if err != nil {
		return known, wrapNetworkErr(n, err)
	}
	inv.ContainerID, inv.Args = containerID, invocationArgs(known.Profile, containerID, owner)
	return inv, nil
}

// fillInvocation adds to an invocation with Plugin and Profile the fields that all attachments of
// the network share.
func (r *Runner) fillInvocation(ctx context.Context, inv call.Invocation, n call.Network, object pluginObject) (call.Invocation, error) {
	var err error
	if danger := inv.Profile.Danger(); danger != "" && !r.opts.AcceptUnsafe {
		return inv, fmt.Errorf("plugin %s is refused as unsafe: %s. --accept-unsafe-plugin uses it anyway", inv.Plugin, danger)
	}
	if n.Shared && inv.Profile.OnNode() && !r.opts.SingleNode {
		return inv, fmt.Errorf("the configuration is from a ConfigMap, which is the same on every node, and plugin %s knows only the allocations of its node: "+
			"two nodes would allocate the same addresses; expected separate ranges for each node (delegated-ipam-bridge network, docs/install/ranges.md) or a plugin for the whole cluster. "+
			"--single-node accepts it in a cluster of one node", inv.Plugin)
	}
	if err := errors.Join(inv.Profile.CheckTimeout(r.opts.Timeout), inv.Profile.CheckNetworkName(n.Name, object)); err != nil {
		return inv, err
	}
	if inv.Binary, err = r.findPlugin(inv.Plugin); err != nil {
		return inv, err
	}
	if inv.CNIVersion, err = r.negotiate(ctx, inv.Plugin, inv.Binary); err != nil {
		return inv, err
	}
	if inv.Capabilities, err = object.capabilities(); err != nil {
		return inv, err
	}
	if err := r.checkHostDirs(inv.Profile, object); err != nil {
		return inv, err
	}
	if inv.Config, err = object.networkConfig(n.Name, inv.CNIVersion); err != nil {
		return inv, err
	}
	if inv.NetNS, err = r.namespace(inv.Profile); err != nil {
		return inv, err
	}
	inv.Network, inv.DisableCheck = n.Name, n.DisableCheck
	inv.Path, inv.IfName = r.cniPath, r.opts.IfName
	return inv, nil
}

// namespace returns CNI_NETNS for a plugin: --cni-netns, or else one that the plugin works with.
func (r *Runner) namespace(p profile.Profile) (string, error) {
	if p.Namespace == profile.NamespaceLink && r.opts.NetNS == "" {
		return "", fmt.Errorf("plugin %s needs a persistent network namespace with the interface %s; set it by --cni-netns", p.Type, r.opts.IfName)
	}
	return cmp.Or(r.opts.NetNS, DefaultNetNS), nil
}
