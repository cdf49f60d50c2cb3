package render

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
)

// fields are those of an ipam object that name addresses, and those of its elements: host-local has subnet and
// ranges, static has addresses.
type fields struct {
	Type       json.RawMessage `json:"type"`
	Ranges     json.RawMessage `json:"ranges"`
	Addresses  json.RawMessage `json:"addresses"`
	Subnet     json.RawMessage `json:"subnet"`
	RangeStart json.RawMessage `json:"rangeStart"`
	RangeEnd   json.RawMessage `json:"rangeEnd"`
	Address    json.RawMessage `json:"address"`
	// Delegate is the object of which the daemon runs the plugin, if type is cniconf.ContainerPlugin.
	Delegate json.RawMessage `json:"delegate"`
}

// parseIPAM returns the fields and the type of an ipam object, and whether it is one.
func parseIPAM(object json.RawMessage) (f fields, pluginType string, ok bool) {
	ok = json.Unmarshal(object, &f) == nil && json.Unmarshal(f.Type, &pluginType) == nil
	return f, pluginType, ok
}

// ofNode reports whether a value of a template is a string with a variable.
func ofNode(value json.RawMessage) bool {
	var s string
	return json.Unmarshal(value, &s) == nil && hasVariable(s)
}

// sharedRange returns a range or an address that each node would get from the ipam object of a type in a template;
// empty if there is none: each has a variable of the node, or both ends of a range have one.
func sharedRange(template, pluginType string) string {
	var list struct {
		Plugins []json.RawMessage `json:"plugins"`
	}
	_ = json.Unmarshal([]byte(template), &list) // what is no list, or no object, is a variable
	for _, plugin := range list.Plugins {
		var p struct {
			IPAM json.RawMessage `json:"ipam"`
		}
		if json.Unmarshal(plugin, &p) != nil {
			continue
		}
		f, t, ok := parseIPAM(p.IPAM)
		if ok && t == cniconf.ContainerPlugin {
			p.IPAM = f.Delegate
			f, t, ok = parseIPAM(p.IPAM)
		}
		if !ok || t != pluginType && !hasVariable(t) {
			continue
		}
		whole := f.Ranges == nil && f.Addresses == nil || f.Subnet != nil || f.RangeStart != nil || f.RangeEnd != nil
		if shared := sharedIn(p.IPAM); whole && shared != "" {
			return shared
		}
		for _, value := range []json.RawMessage{f.Ranges, f.Addresses} {
			if shared := sharedIn(value); shared != "" {
				return shared
			}
		}
	}
	return ""
}

// sharedIn is sharedRange for a range, an address, or a list of them.
func sharedIn(value json.RawMessage) string {
	var list []json.RawMessage
	if value == nil || json.Unmarshal(value, &list) == nil {
		for _, element := range list {
			if shared := sharedIn(element); shared != "" {
				return shared
			}
		}
		return ""
	}
	var f fields
	_ = json.Unmarshal(value, &f)
	if ofNode(value) || ofNode(f.Subnet) || ofNode(f.Address) || ofNode(f.RangeStart) && ofNode(f.RangeEnd) {
		return ""
	}
	var text bytes.Buffer
	_ = json.Compact(&text, value) // it was parsed
	return text.String()
}

// SharedRangeError is the error of a template with the same range for two nodes.
type SharedRangeError struct {
	// Plugin is the type of the plugin, Shared the common range.
	Plugin, Shared string
}

// Error names the common range, the expectation and the remedy.
func (e *SharedRangeError) Error() string {
	return fmt.Sprintf("every node would get %s, and plugin %s knows only the allocations of its own node, so two nodes would allocate the same addresses; "+
		"expected a variable of the node in each range, such as ${ranges} (Node.spec.podCIDRs), or a cluster-wide plugin. In a cluster of one node set --single-node", e.Shared, e.Plugin)
}
