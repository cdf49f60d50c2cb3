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
