package plugin

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// ContainerInvocation returns the invocation of an ADD for a container interface. The plugin gets what
// the runtime passed, as if the runtime had called it. It fails as NewInvocation does.
func (r *Runner) ContainerInvocation(ctx context.Context, n call.Network, c call.Container) (call.Invocation, error) {
	namespace := ""
	if usableNetNS(c.NetNS) {
		namespace = c.NetNS
	}
	inv, err := r.newInvocation(ctx, n, namespace)
	if err != nil {
		return inv, err
	}
	inv.ContainerID, inv.IfName = c.ContainerID, c.IfName
	return r.WithContainer(inv, c)
}

// WithContainer returns an invocation of a container interface with what the runtime passes for it now.
func (r *Runner) WithContainer(inv call.Invocation, c call.Container) (_ call.Invocation, err error) {
	if inv.NetNS = c.NetNS; !usableNetNS(c.NetNS) {
		if inv.NetNS, err = r.namespace(inv.Profile); err != nil {
			return inv, err
		}
	}
	inv.Args = c.Args
	c.RuntimeConfig, inv.AddOnly = splitRuntimeConfig(c.RuntimeConfig)
	inv.Config, err = withContainer(inv.Config, c)
	return inv, err
}

// splitRuntimeConfig returns what of runtimeConfig each verb gets, and what only the ADD gets.
func splitRuntimeConfig(runtimeConfig json.RawMessage) (recorded json.RawMessage, addOnly map[string]json.RawMessage) {
	var object map[string]json.RawMessage
	if json.Unmarshal(runtimeConfig, &object) != nil {
		return runtimeConfig, nil
	}
	annotations, ok := object[call.KeyPodAnnotations]
	if !ok {
		return runtimeConfig, nil
	}
	delete(object, call.KeyPodAnnotations)
	recorded, err := json.Marshal(object)
	if err != nil {
		return runtimeConfig, nil
	}
	return recorded, map[string]json.RawMessage{call.KeyPodAnnotations: annotations}
}

// usableNetNS reports whether a plugin can get the CNI_NETNS of a runtime. The plugin would allocate and
// then fail with that of the daemon, and a path in /proc is another process here, or a later one.
func usableNetNS(path string) bool {
	return path != "" && !strings.HasPrefix(path, "/proc/") && checkNetNS(path) == nil
}

// withContainer returns a network configuration with the keys that the runtime sets.
func withContainer(config json.RawMessage, c call.Container) (json.RawMessage, error) {
	object, err := parsePluginObject(config)
	if err != nil {
		return nil, err
	}
	for key, value := range map[string]json.RawMessage{call.KeyArgs: c.CNIArgs, call.KeyRuntimeConfig: c.RuntimeConfig} {
		delete(object, key)
		if value != nil {
			object[key] = value
		}
	}
	return json.Marshal(object)
}
