package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// NewInvocation returns the invocation of a new ADD in a network. It finds the IPAM plugin in the
// plugin directories, and runs its VERSION, once per binary. An error names file and network. It wraps
// a *call.Error if VERSION failed; any other error is a fault of the configuration, or a plugin
// that does not exist. The invocation returned with an error cannot be called with, but has Plugin
// and, if it is known, Profile, for display.
func (r *Runner) NewInvocation(ctx context.Context, n call.Network, containerID, owner string) (call.Invocation, error) {
	inv, err := r.newInvocation(ctx, n, "")
	if err != nil {
		return inv, err
	}
	inv.ContainerID, inv.Args = containerID, invocationArgs(inv.Profile, containerID, owner)
	return inv, nil
}

// newInvocation returns an invocation without container ID and CNI_ARGS. netns is CNI_NETNS; empty for
// that of an owner without a container.
func (r *Runner) newInvocation(ctx context.Context, n call.Network, netns string) (call.Invocation, error) {
	known := call.Invocation{Plugin: n.IPAMType}
	profiles, err := r.opts.Profiles()
	if err != nil {
		return known, wrapNetworkErr(n, err)
	}
	known.Profile = profiles.For(n.IPAMType)
	inv, err := r.fillInvocation(ctx, known, n, netns)
	if err != nil {
		return known, wrapNetworkErr(n, err)
	}
	return inv, nil
}

// wrapNetworkErr adds file and network to an error of a network's configuration, or of the plugin
// that it names.
func wrapNetworkErr(n call.Network, err error) error {
	return fmt.Errorf("%s: network %q: %w", n.File, n.Name, err)
}

// fillInvocation adds to an invocation with Plugin and Profile the fields that all attachments of
// the network share.
func (r *Runner) fillInvocation(ctx context.Context, inv call.Invocation, n call.Network, netns string) (call.Invocation, error) {
	object, err := parsePluginObject(n.PluginConfig)
	if err != nil {
		return inv, err
	}
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
	if inv.Binary, inv.CNIVersion, err = r.implementation(ctx, inv.Plugin); err != nil {
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
	if inv.NetNS = netns; netns == "" {
		if inv.NetNS, err = r.namespace(inv.Profile); err != nil {
			return inv, err
		}
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

// pluginObject is the parsed plugin object of a network. Unknown keys are kept as they are.
type pluginObject map[string]json.RawMessage

func parsePluginObject(config []byte) (object pluginObject, err error) {
	if err := json.Unmarshal(config, &object); err != nil {
		return nil, fmt.Errorf("plugin object: %w", err)
	}
	return object, nil
}

// capabilities returns the names that the plugin object declares true, sorted.
func (o pluginObject) capabilities() ([]string, error) {
	var declared map[string]bool
	if raw, ok := o["capabilities"]; ok {
		if err := json.Unmarshal(raw, &declared); err != nil {
			return nil, fmt.Errorf("capabilities: %w; expected an object of booleans", err)
		}
	}
	maps.DeleteFunc(declared, func(_ string, on bool) bool { return !on })
	return slices.Sorted(maps.Keys(declared)), nil
}

// networkConfig turns the plugin object into the complete network configuration that the plugin
// reads on stdin, and returns it (CNI spec section 3, "Deriving execution configuration"). It leaves
// out what belongs to one call; prepare adds that.
func (o pluginObject) networkConfig(name, cniVersion string) (json.RawMessage, error) {
	o["name"], _ = json.Marshal(name) // text always can be marshalled
	o["cniVersion"], _ = json.Marshal(cniVersion)
	delete(o, "prevResult")
	delete(o, "runtimeConfig")
	// Every attachment would request the address that a configuration requests.
	config, err := json.Marshal(o)
	if err == nil && o[call.KeyArgs] != nil {
		return setKey(config, nil, call.KeyArgs, "cni", "ips")
	}
	return config, err
}

// checkNetNS returns an error if path is the namespace of this process or of process 1, in which no
// plugin may work, under any name: a symbolic link or a bind mount has the same device and inode. A
// path that does not exist is accepted, as plugins do. A namespace of process 1 that cannot be read is
// another user's.
func checkNetNS(path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("network namespace %q: expected an absolute path", path)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("network namespace %q is not accessible: %w; expected one that this process may open, or a path that does not exist", path, err)
	}
	for _, own := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		if ownInfo, err := os.Stat(own); err == nil && os.SameFile(info, ownInfo) {
			return fmt.Errorf("network namespace %q is that of this process or of process 1, in which plugins fail after they have allocated; expected another one, or a path that does not exist", path)
		}
	}
	return nil
}
