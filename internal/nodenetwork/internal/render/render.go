package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// provenanceKey is the key in a rendered configuration that names its node. CNI ignores it.
const provenanceKey = "renderedFor"

// provenance identifies the state of a Node for which a configuration was rendered.
type provenance struct {
	Node     string   `json:"node"`
	UID      string   `json:"uid"`
	PodCIDRs []string `json:"podCIDRs"`
	// SingleNode reports whether other nodes may have the same ranges.
	SingleNode bool `json:"singleNode,omitempty"`
}

// maxOutput limits a rendered configuration, in bytes: the sidecar reads no larger file. Real ones have
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
func Render(text string, n Node, o Options) ([]byte, error) {
	rendered, network, err := configuration(text, n)
	if err != nil {
		return nil, err
	}
	if !o.SingleNode && o.Profiles.For(network.IPAMType).OnNode() {
		if err := checkOwnRange(text, n, network); err != nil {
			return nil, err
		}
	}
	return withProvenance(rendered, n, o)
}

// configuration executes a template, and parses the result as the sidecar does.
func configuration(text string, n Node) ([]byte, call.Network, error) {
	rendered, err := execute(text, n)
	if err != nil {
		return nil, call.Network{}, err
	}
	network, err := cniconf.ParseList(rendered)
	if err != nil {
		return nil, call.Network{}, fmt.Errorf("the result is not a CNI network configuration list with a plugin that delegates IPAM: %w", err)
	}
	return rendered, network, nil
}

// withProvenance adds the node to a configuration. Other keys are not changed.
func withProvenance(config []byte, n Node, o Options) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(config, &object); err != nil {
		return nil, err
	}
	from, err := json.Marshal(provenance{Node: n.Name, UID: n.UID, PodCIDRs: slices.Concat([]string{}, n.PodCIDRs), SingleNode: o.SingleNode})
	if err != nil {
		return nil, err
	}
	object[provenanceKey] = from
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(object); err != nil {
		return nil, err
	}
	return out.Bytes(), checkSize(out.Len())
}

// IsOf reports whether a configuration was rendered for this Node, with its UID and its present
// podCIDRs. A configuration that was rendered with SingleNode counts only with SingleNode.
func IsOf(config []byte, n Node, o Options) bool {
	var object map[string]json.RawMessage // a struct would accept another case of the key
	var from provenance
	if json.Unmarshal(config, &object) != nil || json.Unmarshal(object[provenanceKey], &from) != nil {
		return false
	}
	if from.SingleNode && !o.SingleNode {
		return false
	}
	return n.UID != "" && from.Node == n.Name && from.UID == n.UID && slices.Equal(from.PodCIDRs, n.PodCIDRs)
}
