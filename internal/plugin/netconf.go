package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// wrapNetworkErr adds file and network to an error of a network's configuration, or of the plugin
// that it names.
func wrapNetworkErr(n call.Network, err error) error {
	if n.File == "" {
		return fmt.Errorf("network %q: %w", n.Name, err)
	}
	return fmt.Errorf("%s: network %q: %w", n.File, n.Name, err)
}

// pluginObject is the parsed plugin object of a network. Unknown keys are kept as they are.
type pluginObject map[string]json.RawMessage

// parseNetwork returns the plugin object of a network.
func parseNetwork(n call.Network) (pluginObject, error) {
	var object pluginObject
	if err := json.Unmarshal(n.PluginConfig, &object); err != nil {
		return nil, fmt.Errorf("plugin object: %w", err)
	}
	if n.Name == "" {
		return nil, errors.New("name is empty; plugins refuse that (CNI spec section 1)")
	}
	return object, nil
}

// ipamType returns the delegated plugin's type, ipam.type.
func (o pluginObject) ipamType() (string, error) {
	var ipam struct {
		Type *string `json:"type"`
	}
	if raw, ok := o["ipam"]; ok {
		if err := json.Unmarshal(raw, &ipam); err != nil {
			return "", fmt.Errorf("ipam.type: %w; expected a plugin type such as \"host-local\"", err)
		}
	}
	if ipam.Type == nil || *ipam.Type == "" {
		return "", errors.New("ipam.type is missing; expected a plugin type such as \"host-local\"")
	}
	return *ipam.Type, nil
}

// capabilities returns the names that the plugin object declares true, sorted.
func (o pluginObject) capabilities() ([]string, error) {
	var declared map[string]bool
	if raw, ok := o["capabilities"]; ok {
		if err := json.Unmarshal(raw, &declared); err != nil {
			return nil, fmt.Errorf("capabilities: %w; expected an object of booleans", err)
		}
	}
	var names []string
	for name, on := range declared {
		if on {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// networkConfig turns the plugin object into the complete network configuration that the plugin
// reads on stdin, and returns it (CNI spec section 3, "Deriving execution configuration"). It leaves
// out what belongs to one call; prepare adds that.
func (o pluginObject) networkConfig(name, cniVersion string) (json.RawMessage, error) {
	var err error
	if o["name"], err = json.Marshal(name); err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	if o["cniVersion"], err = json.Marshal(cniVersion); err != nil {
		return nil, fmt.Errorf("cniVersion: %w", err)
	}
	delete(o, "prevResult")
	delete(o, "runtimeConfig")
	if err := removeRequestedIPs(o); err != nil {
		return nil, err
	}
	return json.Marshal(o)
}
