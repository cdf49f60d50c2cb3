package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// provenanceKey is the key in a rendered configuration that names its node. CNI ignores it.
const provenanceKey = "renderedFor"

// provenance identifies the state of a Node for which a configuration was rendered.
type provenance struct {
	Node     string   `json:"node"`
	UID      string   `json:"uid"`
	PodCIDRs []string `json:"podCIDRs"`
	// Values are the labels and annotations of the template, as JSON, by the names of their variables: a range that was
	// removed from the Node may be another one's.
	Values map[string]string `json:"values,omitempty"`
	// SingleNode reports whether other nodes may have the same ranges.
	SingleNode bool `json:"singleNode,omitempty"`
}

// maxOutput limits a rendered configuration, in bytes: the daemon reads no larger file. Real ones have
// a few hundred bytes.
const maxOutput = 1 << 20

func checkSize(bytes int) error {
	if bytes > maxOutput {
		return fmt.Errorf("the rendered configuration has more than %d bytes; expected at most these: use fewer variables, or shorter values", maxOutput)
	}
	return nil
}

type Options struct {
	// SingleNode accepts one range for all nodes (--single-node).
	SingleNode bool
	// Profiles are the plugin profiles, as profile.Load returns them.
	Profiles profile.Set
}

// Render returns the network configuration of a node: the template with its variables replaced, which
// must be a CNI network configuration list that delegates IPAM, with the node in the key renderedFor.
// The error wraps ErrNoPodCIDRs if the template uses the podCIDRs of a node without any, and a
// *SharedRangeError if other nodes would get the same range.
func Render(text string, n *corev1.Node, o Options) ([]byte, error) {
	document, err := parse(text)
	if err != nil {
		return nil, err
	}
	r := replacement{node: n, values: map[string]string{}}
	if document, err = r.in(document); err == nil {
		err = r.noPodCIDRs
	}
	if err != nil {
		return nil, err
	}
	if object, ok := document.(map[string]any); ok {
		object[provenanceKey] = provenance{Node: n.Name, UID: string(n.UID), PodCIDRs: slices.Concat([]string{}, n.Spec.PodCIDRs), Values: r.values, SingleNode: o.SingleNode}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := errors.Join(encoder.Encode(document), checkSize(out.Len())); err != nil {
		return nil, err
	}
	network, err := cniconf.ParseList(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("the result is not a CNI network configuration list with a plugin that delegates IPAM: %w", err)
	}
	if !o.SingleNode && o.Profiles.For(network.IPAMType).OnNode() {
		if shared := sharedRange(text, network.IPAMType); shared != "" {
			return nil, sharedRangeError(shared, network.IPAMType)
		}
	}
	return out.Bytes(), nil
}

// IsOf reports whether a configuration was rendered for this Node, with its UID and its present
// podCIDRs, labels and annotations. A configuration that was rendered with SingleNode counts only with SingleNode.
func IsOf(config []byte, n *corev1.Node, o Options) bool {
	var object map[string]json.RawMessage // a struct would accept another case of the key
	var from provenance
	if json.Unmarshal(config, &object) != nil || json.Unmarshal(object[provenanceKey], &from) != nil {
		return false
	}
	if from.SingleNode && !o.SingleNode {
		return false
	}
	for name, value := range from.Values {
		if now, err := lookUp(n, name); err != nil || now != value {
			return false
		}
	}
	return n.UID != "" && from.Node == n.Name && from.UID == string(n.UID) && slices.Equal(from.PodCIDRs, n.Spec.PodCIDRs)
}

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
	_ = json.Unmarshal([]byte(template), &list) // a value of another type is a variable
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
		single = len(list) == 0 || f.Subnet+f.RangeStart+f.RangeEnd+f.Address != ""
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
