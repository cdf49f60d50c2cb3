// Package render makes the CNI network configuration of one node from a template that all nodes
// share.
package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// parse returns a template, which is a JSON document. Its numbers keep their digits.
func parse(text string) (document any, err error) {
	var syntax *json.SyntaxError
	if err := json.Unmarshal([]byte(text), new(json.RawMessage)); errors.As(err, &syntax) {
		line := 1 + strings.Count(text[:max(int(syntax.Offset)-1, 0)], "\n") // the offset is that behind the unexpected character
		return nil, fmt.Errorf(`line %d: %w; expected a JSON document with variables in its strings, such as "ranges": "${ranges}"`, line, err)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	return document, decoder.Decode(&document)
}

// replacement replaces the variables in the strings of a template by the values of a node.
type replacement struct {
	node *corev1.Node
	// values has the value of each label and annotation that was used, and size is the number of bytes of all values.
	values map[string]string
	size   int
	// noPodCIDRs is ErrNoPodCIDRs if the template needs those of a node without any. Any other error is a fault of
	// the template.
	noPodCIDRs error
}

// in returns a value of a template with its variables replaced. Objects and lists are changed.
func (r *replacement) in(value any) (replaced any, err error) {
	switch v := value.(type) {
	case string:
		replaced, err := r.inString(v)
		if errors.Is(err, ErrNoPodCIDRs) {
			r.noPodCIDRs, err = err, nil // the rest may have a fault
		}
		return replaced, err
	case []any:
		for i := range v {
			if v[i], err = r.in(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if strings.Contains(key, opening) {
				return nil, fmt.Errorf("the key %q has a variable; expected variables in values only", key)
			}
			if v[key], err = r.in(v[key]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// opening begins a variable. A "$" before it makes it literal text.
const opening = "${"

// variable matches a variable, closed or not, and the literal text of opening.
var variable = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)

// hasVariable reports whether a string of a template has a variable of the node.
func hasVariable(s string) bool {
	return slices.ContainsFunc(variable.FindAllString(s, -1), func(match string) bool { return match != "$"+opening })
}

// inString returns a string with its variables replaced; for a string that is exactly one variable
// the value of that variable, which may be of any JSON type.
func (r *replacement) inString(s string) (any, error) {
	if name, ok := strings.CutPrefix(s, opening); ok && strings.IndexByte(name, '}') == len(name)-1 && name != "" {
		value, err := r.value(name[:len(name)-1])
		return json.RawMessage(value), err
	}
	var failed error
	whole := variable.ReplaceAllStringFunc(s, func(match string) string {
		if failed != nil || match == "$"+opening {
			return opening
		}
		name, closed := strings.CutSuffix(match[len(opening):], "}")
		value, err := r.value(name)
		var text *string
		switch {
		case !closed:
			failed = fmt.Errorf("%q has no closing }; expected a variable such as ${nodeName}, or $${ for a literal ${", match)
		case err != nil:
			failed = err
		case json.Unmarshal([]byte(value), &text) != nil || text == nil:
			failed = fmt.Errorf("${%s} is %.100s, in a longer string; expected a string as its value, or a string that is this variable alone", name, value)
		default:
			return *text
		}
		return ""
	})
	return whole, failed
}

// value returns the value of a variable as JSON.
func (r *replacement) value(name string) (string, error) {
	value, err := lookUp(r.node, name)
	if err != nil {
		return "", fmt.Errorf("${%s}: %w", name, err)
	}
	if kind, _, hasKey := strings.Cut(name, "["); hasKey && kind != "podCIDRs" {
		r.values[name] = value
	}
	r.size += len(value)
	return value, checkSize(r.size)
}

func asJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// ErrNoPodCIDRs is the error of a template that uses the podCIDRs of a node without any.
var ErrNoPodCIDRs = errors.New("Node.spec.podCIDRs is empty")

// lookUp returns the value of a variable as JSON: of a label or an annotation its text, or the JSON that it is.
func lookUp(n *corev1.Node, name string) (string, error) {
	of, key, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	kind, isJSON := strings.CutPrefix(of, "json:")
	all, isMap := map[string]map[string]string{"labels": n.Labels, "annotations": n.Annotations}[kind]
	text, exists := all[key]
	switch hasKey := name == of+"["+key+"]"; {
	case name == "nodeName":
		return asJSON(n.Name)
	case name == "ranges", name == "podCIDRs", hasKey && of == "podCIDRs":
		return podCIDRs(n, name, key)
	case !hasKey || !isMap:
		return "", errors.New("unknown variable; expected ${ranges}, ${podCIDRs}, ${podCIDRs[INDEX]}, ${nodeName}, ${labels[KEY]}, ${annotations[KEY]}, " +
			"${json:labels[KEY]} or ${json:annotations[KEY]}, or $${ for a literal ${")
	case !exists:
		return "", fmt.Errorf("the Node has no %s %q; expected one, with its key in the template without quotes: add it to the Node, or use a template without it", strings.TrimSuffix(kind, "s"), key)
	case !isJSON:
		return asJSON(text)
	}
	if err := json.Unmarshal([]byte(text), new(json.RawMessage)); err != nil {
		return "", fmt.Errorf("its text is not JSON: %w; expected a JSON value, or the variable without json: for the text", err)
	}
	return text, nil
}

// podCIDRs returns a variable of the podCIDRs: all of them, host-local's "ranges" (one set with one range for each),
// or that of an index, counted from 0.
func podCIDRs(n *corev1.Node, name, index string) (string, error) {
	if len(n.Spec.PodCIDRs) == 0 {
		return "", ErrNoPodCIDRs
	}
	var all []string
	var sets [][]map[string]string
	for _, text := range n.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return "", fmt.Errorf("Node.spec.podCIDRs has %q; expected a range such as 10.244.1.0/24", text)
		}
		cidr := p.Masked().String()
		all, sets = append(all, cidr), append(sets, []map[string]string{{"subnet": cidr}})
	}
	switch name {
	case "podCIDRs":
		return asJSON(all)
	case "ranges":
		return asJSON(sets)
	}
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= len(all) {
		return "", fmt.Errorf("the Node has the podCIDRs %s; expected an index from 0 to %d", strings.Join(all, ", "), len(all)-1)
	}
	return asJSON(all[i])
}
