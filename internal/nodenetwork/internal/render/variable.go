package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ErrNoPodCIDRs is the error of a template that uses the podCIDRs of a node without any.
var ErrNoPodCIDRs = errors.New("Node.spec.podCIDRs is empty")

// Node has the fields of a Node that a template may use.
type Node struct {
	// Name and UID are those of its metadata. A node that is deleted and created again has the
	// same name and another UID.
	Name, UID string
	// PodCIDRs are spec.podCIDRs, in their order.
	PodCIDRs            []string
	Labels, Annotations map[string]string
}

// opening begins a variable. A "$" before it makes it literal text.
const opening = "${"

// part is a part of a string: literal text, or the name of a variable.
type part struct {
	text     string
	variable bool
}

// split splits a string into its parts.
func split(s string) ([]part, error) {
	var parts []part
	literal := func(text string) {
		if text != "" {
			parts = append(parts, part{text: text})
		}
	}
	for {
		at := strings.Index(s, opening)
		switch {
		case at < 0:
			literal(s)
			return parts, nil
		case at > 0 && s[at-1] == '$':
			literal(s[:at-1] + opening)
			s = s[at+len(opening):]
		default:
			name, rest, closed := strings.Cut(s[at+len(opening):], "}")
			if !closed {
				return nil, fmt.Errorf("%q has no closing }; expected a variable such as ${nodeName}, or $${ for a literal ${", s[at:])
			}
			literal(s[:at])
			parts = append(parts, part{text: name, variable: true})
			s = rest
		}
	}
}

// value returns the value of a variable as JSON.
func (n Node) value(name string) (string, error) {
	value, err := n.lookUp(name)
	if err != nil {
		return "", fmt.Errorf("${%s}: %w", name, err)
	}
	return value, nil
}

// text returns the value of a variable in a longer string.
func (n Node) text(name string) (string, error) {
	value, err := n.value(name)
	if err != nil {
		return "", err
	}
	var text *string
	if json.Unmarshal([]byte(value), &text) != nil || text == nil {
		return "", fmt.Errorf("${%s} is %.100s, in a longer string; expected a string as its value, or a string that is this variable alone", name, value)
	}
	return *text, nil
}

func (n Node) lookUp(name string) (string, error) {
	switch name {
	case "ranges":
		return n.ranges()
	case "podCIDRs":
		all, err := n.podCIDRs()
		if err != nil {
			return "", err
		}
		return asJSON(all)
	case "nodeName":
		return asJSON(n.Name)
	}
	switch of, key := index(name); of {
	case "podCIDRs":
		return n.podCIDR(key)
	case "labels":
		return quoted(find(n.Labels, "label", key))
	case "annotations":
		return quoted(find(n.Annotations, "annotation", key))
	case "json:labels":
		return parsed(find(n.Labels, "label", key))
	case "json:annotations":
		return parsed(find(n.Annotations, "annotation", key))
	}
	return "", errors.New("unknown variable; expected ${ranges}, ${podCIDRs}, ${podCIDRs[INDEX]}, ${nodeName}, ${labels[KEY]}, ${annotations[KEY]}, " +
		"${json:labels[KEY]} or ${json:annotations[KEY]}, or $${ for a literal ${")
}

// index returns the parts of a name of the form of[key]; nothing for another name.
func index(name string) (of, key string) {
	name, closed := strings.CutSuffix(name, "]")
	of, key, opened := strings.Cut(name, "[")
	if !closed || !opened {
		return "", ""
	}
	return of, key
}

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

// podCIDR returns one of the podCIDRs, counted from 0.
func (n Node) podCIDR(index string) (string, error) {
	all, err := n.podCIDRs()
	if err != nil {
		return "", err
	}
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= len(all) {
		return "", fmt.Errorf("the Node has the podCIDRs %s; expected an index from 0 to %d", strings.Join(all, ", "), len(all)-1)
	}
	return asJSON(all[i])
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

// find returns a label or an annotation.
func find(all map[string]string, kind, key string) (string, error) {
	text, ok := all[key]
	if !ok {
		return "", fmt.Errorf("the Node has no %s %q; expected one, with its key in the template without quotes: add it to the Node, or use a template without it", kind, key)
	}
	return text, nil
}

// quoted returns a text as a JSON string; the error of find is passed on.
func quoted(text string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return asJSON(text)
}

// parsed returns a text that is JSON; the error of find is passed on.
func parsed(text string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	var value json.RawMessage
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return "", fmt.Errorf("its text is not JSON: %w; expected a JSON value, or the variable without json: for the text", err)
	}
	return text, nil
}
