package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Network is the part of a CNI network configuration that delegates IPAM.
type Network struct {
	// Name is the network's name.
	Name string
	// File is the path of the configuration file; for errors only.
	File string
	// CNIVersion is what the configuration says. Calls use the highest version
	// both sides know instead (docs/plugins.md, CNI versions).
	CNIVersion string
	// PluginConfig is the plugin object of the list that has the ipam section.
	PluginConfig json.RawMessage
	// DisableCheck is the list's disableCheck.
	DisableCheck bool
}

// wrong is an error of the network's configuration, or of the plugin it names.
func (n Network) wrong(err error) error {
	if n.File == "" {
		return fmt.Errorf("network %q: %w", n.Name, err)
	}
	return fmt.Errorf("%s: network %q: %w", n.File, n.Name, err)
}

// ipamType returns the delegated plugin's type, ipam.type.
func (n Network) ipamType(object map[string]json.RawMessage) (string, error) {
	var ipam struct {
		Type *string `json:"type"`
	}
	if raw, ok := object["ipam"]; ok {
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
func (n Network) capabilities(object map[string]json.RawMessage) ([]string, error) {
	var declared map[string]bool
	if raw, ok := object["capabilities"]; ok {
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

// object parses the plugin object, whose unknown keys stay as they are.
func (n Network) object() (map[string]json.RawMessage, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(n.PluginConfig, &object); err != nil {
		return nil, fmt.Errorf("plugin object: %w", err)
	}
	if n.Name == "" {
		return nil, errors.New("name is empty; plugins refuse that (CNI spec section 1)")
	}
	return object, nil
}

// configuration returns the complete network configuration as a plugin gets it
// on stdin (CNI spec section 3, "Deriving execution configuration"). What
// belongs to one call is left out: prepare adds it.
func (n Network) configuration(object map[string]json.RawMessage, cniVersion string) (json.RawMessage, error) {
	var err error
	if object["name"], err = json.Marshal(n.Name); err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	if object["cniVersion"], err = json.Marshal(cniVersion); err != nil {
		return nil, fmt.Errorf("cniVersion: %w", err)
	}
	delete(object, "prevResult")
	delete(object, "runtimeConfig")
	if err := removeRequest(object); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}
