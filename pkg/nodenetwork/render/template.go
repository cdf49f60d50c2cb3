// Package render makes the CNI network configuration of one node from a template that all nodes
// share.
package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"text/template"
)

// maxOutput limits a rendered template, in bytes; real ones have a few kilobytes.
const maxOutput = 1 << 20

// ErrNoPodCIDRs is the error of a template that uses the podCIDRs of a node without any.
var ErrNoPodCIDRs = errors.New("Node.spec.podCIDRs is empty")

// Node is what a template may use of a Node.
type Node struct {
	// Name and UID are those of its metadata. A node that is deleted and created again has the
	// same name and another UID.
	Name, UID string
	// PodCIDRs are spec.podCIDRs, in their order.
	PodCIDRs            []string
	Labels, Annotations map[string]string
}

// execute executes a template. Its errors have the line; one that wraps ErrNoPodCIDRs is not a fault
// of the template.
func execute(text string, n Node) ([]byte, error) {
	t, err := template.New("pods.conflist").Option("missingkey=error").Funcs(template.FuncMap{
		"ranges": n.ranges, "index": index, "json": asJSON,
	}).Parse(text)
	if err != nil {
		return nil, err
	}
	// A definition that includes itself would take the memory of the node.
	if len(t.Templates()) > 1 {
		return nil, errors.New("define or block; expected a template without these actions")
	}
	var out limitedBuffer
	if err := t.Execute(&out, data{n}); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// data is the dot of a template. Its fields are methods, so that the use of podCIDRs of a node
// without any is an error, whatever the template does with them.
type data struct{ node Node }

// NodeName returns the name of the node.
func (d data) NodeName() string { return d.node.Name }

// Labels returns the labels of the node.
func (d data) Labels() map[string]string { return d.node.Labels }

// Annotations returns the annotations of the node.
func (d data) Annotations() map[string]string { return d.node.Annotations }

// PodCIDRs returns the ranges of the node's pods; the error is ErrNoPodCIDRs, or that one is
// malformed.
func (d data) PodCIDRs() ([]string, error) { return d.node.podCIDRs() }

func (n Node) podCIDRs() ([]string, error) {
	if len(n.PodCIDRs) == 0 {
		return nil, ErrNoPodCIDRs
	}
	all := make([]string, len(n.PodCIDRs))
	for i, text := range n.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("Node.spec.podCIDRs has %q; expected a range such as 10.244.1.0/24", text)
		}
		all[i] = p.Masked().String()
	}
	return all, nil
}

// ranges returns a list of range sets as host-local's "ranges" has it: one set with one range for
// each of the podCIDRs.
func (n Node) ranges() (string, error) {
	all, err := n.podCIDRs()
	if err != nil {
		return "", err
	}
	type subnet struct {
		Subnet string `json:"subnet"`
	}
	sets := make([][]subnet, len(all))
	for i, cidr := range all {
		sets[i] = []subnet{{cidr}}
	}
	return asJSON(sets)
}

// index is the function of this name, except that a missing label or annotation is an error.
func index(of, at any) (string, error) {
	switch of := of.(type) {
	case map[string]string:
		key, ok := at.(string)
		if !ok {
			return "", fmt.Errorf("key %v; expected text in double quotes", at)
		}
		value, ok := of[key]
		if !ok {
			return "", fmt.Errorf("the Node has no label or annotation %q", key)
		}
		return value, nil
	case []string:
		i, ok := at.(int)
		if !ok || i < 0 || i >= len(of) {
			return "", fmt.Errorf("no element %v; the list has %d, counted from 0", at, len(of))
		}
		return of[i], nil
	}
	return "", fmt.Errorf("%T; expected .Labels, .Annotations or .PodCIDRs", of)
}

// asJSON returns a value as JSON, text with its quotes.
func asJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// limitedBuffer is a buffer of at most maxOutput bytes.
type limitedBuffer struct{ bytes.Buffer }

// Write fails if the buffer would become larger than maxOutput.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("its result has more than %d bytes", maxOutput)
	}
	return b.Buffer.Write(p)
}
