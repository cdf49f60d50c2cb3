package delegate

import (
	"context"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// Context returns the call context of a new ADD in a network: the IPAM plugin
// is found in the plugin folders and asked for its versions, once for each
// binary. An error is plain when the configuration is at fault or the plugin
// cannot be found, and wraps a *call.Error when VERSION failed.
func (r *Runner) Context(ctx context.Context, n Network, containerID string) (call.Context, error) {
	object, err := n.object()
	if err != nil {
		return call.Context{}, err
	}
	pluginType, err := n.ipamType(object)
	if err != nil {
		return call.Context{}, err
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
	known := r.opts.Profiles.For(pluginType)
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
		NetNS:        r.opts.NetNS,
		Args:         contextArgs(known, containerID),
		Capabilities: capabilities,
		Profile:      known,
	}, nil
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
