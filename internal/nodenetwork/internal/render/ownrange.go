package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
)

// fields are those of an ipam object that name addresses, and those of its elements: host-local has subnet and
// ranges, static has addresses. A field of another type, such as an object that is a variable, stays empty.
type fields struct {
	Type                                  string
	Ranges, Addresses                     json.RawMessage
	Subnet, RangeStart, RangeEnd, Address string
	// Delegate is the object of which the daemon runs the plugin, if Type is cniconf.ContainerPlugin.
	Delegate json.RawMessage
}

func read(object json.RawMessage) (f fields) {
	_ = json.Unmarshal(object, &f)
	return f
}

// sharedRange returns a range or an address that each node would get from the ipam object of a type in a template;
// empty if there is none: each has a variable of the node, or both ends of a range have one.
func sharedRange(template, pluginType string) string {
	var list struct {
		Plugins []struct{ IPAM json.RawMessage }
	}
	_ = json.Unmarshal([]byte(template), &list) // what is no list, or no object, is a variable
	for _, plugin := range list.Plugins {
		ipam := plugin.IPAM
		if f := read(ipam); f.Type == cniconf.ContainerPlugin {
			ipam = f.Delegate
		}
		if of := read(ipam).Type; of == pluginType || hasVariable(of) {
			if shared := sharedIn(ipam); shared != "" {
				return shared
			}
		}
	}
	return ""
}

// sharedIn is sharedRange for an ipam object, a range, an address, or a list of them.
func sharedIn(value json.RawMessage) string {
	var text string
	var list []json.RawMessage
	_ = json.Unmarshal(value, &text)
	f, single := read(value), json.Unmarshal(value, &list) != nil
	if single {
		list = slices.DeleteFunc([]json.RawMessage{f.Ranges, f.Addresses}, func(v json.RawMessage) bool { return v == nil })
		single = len(list) == 0 || f.Subnet+f.RangeStart+f.RangeEnd != ""
	}
	for _, element := range list {
		if shared := sharedIn(element); shared != "" {
			return shared
		}
	}
	if !single || slices.ContainsFunc([]string{text, f.Subnet, f.Address}, hasVariable) || hasVariable(f.RangeStart) && hasVariable(f.RangeEnd) {
		return ""
	}
	var compact bytes.Buffer
	_ = json.Compact(&compact, value) // it was parsed
	return compact.String()
}

// SharedRangeError is the error of a template with the same range for two nodes.
type SharedRangeError struct{ error }

// sharedRangeError names the common range of a type of plugin, the expectation and the remedy.
func sharedRangeError(shared, pluginType string) error {
	return &SharedRangeError{fmt.Errorf("every node would get %s, and plugin %s knows only the allocations of its own node, so two nodes would allocate the same addresses; "+
		"expected a variable of the node in each range, such as ${ranges} (Node.spec.podCIDRs), or a cluster-wide plugin. In a cluster of one node set --single-node", shared, pluginType)}
}
