// Package render makes the CNI network configuration of one node from a template that all nodes
// share.
package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// execute returns a template, which is a JSON document, with the variables in its strings replaced by
// the values of a node. The rest of the document is copied, so that numbers keep their digits. An error
// has the line; one that wraps ErrNoPodCIDRs is not a fault of the template.
func execute(text string, n Node) ([]byte, error) {
	if err := checkSyntax(text); err != nil {
		return nil, err
	}
	var (
		out        bytes.Buffer
		noPodCIDRs error
	)
	for rest := text; rest != ""; {
		start, end := nextString(rest)
		literal, at := rest[start:end], len(text)-len(rest)+start
		out.WriteString(rest[:start])
		rest = rest[end:]
		isKey := strings.HasPrefix(strings.TrimLeft(rest, " \t\r\n"), ":")
		value, err := expand(literal, isKey, n)
		switch {
		case errors.Is(err, ErrNoPodCIDRs):
			noPodCIDRs = err // the rest may have a fault
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", line(text, at), err)
		}
		out.WriteString(value)
		if err := checkSize(out.Len()); err != nil {
			return nil, err
		}
	}
	if noPodCIDRs != nil {
		return nil, noPodCIDRs
	}
	return out.Bytes(), nil
}

func checkSyntax(text string) error {
	var document json.RawMessage
	err := json.Unmarshal([]byte(text), &document)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		// The offset is that behind the unexpected character.
		return fmt.Errorf(`line %d: %w; expected a JSON document with variables in its strings, such as "ranges": "${ranges}"`, line(text, int(syntax.Offset)-1), err)
	}
	return err
}

func line(text string, offset int) int { return 1 + strings.Count(text[:max(offset, 0)], "\n") }

// nextString returns the bounds of the first string, quotes included, in the rest of a valid JSON
// document; twice the end of the rest if there is none.
func nextString(rest string) (start, end int) {
	start = strings.IndexByte(rest, '"')
	if start < 0 {
		return len(rest), len(rest)
	}
	for end = start + 1; rest[end] != '"'; end++ {
		if rest[end] == '\\' {
			end++
		}
	}
	return start, end + 1
}

// opening begins a variable. A "$" before it makes it literal text.
const opening = "${"

// variable matches a variable, closed or not, and the literal text of opening.
var variable = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)

// expand returns a JSON string with its variables replaced; for a string that is exactly one variable
// the value of that variable, which may be of any JSON type.
func expand(literal string, key bool, n Node) (string, error) {
	if literal == "" {
		return "", nil
	}
	var s string
	if err := json.Unmarshal([]byte(literal), &s); err != nil {
		return "", err
	}
	if !strings.Contains(s, opening) {
		return literal, nil
	}
	if key {
		return "", fmt.Errorf("the key %q has a variable; expected variables in values only", s)
	}
	if name, ok := strings.CutPrefix(s, opening); ok && name != "" && strings.IndexByte(name, '}') == len(name)-1 {
		return n.value(name[:len(name)-1])
	}
	var failed error
	size := 0
	whole := variable.ReplaceAllStringFunc(s, func(match string) string {
		if failed != nil || match == "$"+opening {
			return opening
		}
		name, closed := strings.CutSuffix(match[len(opening):], "}")
		if !closed {
			failed = fmt.Errorf("%q has no closing }; expected a variable such as ${nodeName}, or $${ for a literal ${", match)
			return ""
		}
		var text string
		text, failed = n.text(name)
		if size += len(text); failed == nil {
			failed = checkSize(size)
		}
		return text
	})
	if failed != nil {
		return "", failed
	}
	return asJSON(whole)
}

func asJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// ErrNoPodCIDRs is the error of a template that uses the podCIDRs of a node without any.
var ErrNoPodCIDRs = errors.New("Node.spec.podCIDRs is empty")

// Node has the fields of a Node that a template may use.
type Node struct {
	// Name and UID are in its metadata. A node that is deleted and created again has the
	// same name and another UID.
	Name, UID string
	// PodCIDRs are spec.podCIDRs, in their order.
	PodCIDRs            []string
	Labels, Annotations map[string]string
}

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
	of, key, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	switch {
	case name != of+"["+key+"]":
	case of == "podCIDRs":
		return n.podCIDR(key)
	case of == "labels", of == "json:labels":
		return find(n.Labels, "label", key, of == "json:labels")
	case of == "annotations", of == "json:annotations":
		return find(n.Annotations, "annotation", key, of == "json:annotations")
	}
	return "", errors.New("unknown variable; expected ${ranges}, ${podCIDRs}, ${podCIDRs[INDEX]}, ${nodeName}, ${labels[KEY]}, ${annotations[KEY]}, " +
		"${json:labels[KEY]} or ${json:annotations[KEY]}, or $${ for a literal ${")
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
	sets := make([][]map[string]string, len(all))
	for i, cidr := range all {
		sets[i] = []map[string]string{{"subnet": cidr}}
	}
	return asJSON(sets)
}

// find returns a label or an annotation: its text as a JSON string, or the JSON that it is.
func find(all map[string]string, kind, key string, isJSON bool) (string, error) {
	text, ok := all[key]
	if !ok {
		return "", fmt.Errorf("the Node has no %s %q; expected one, with its key in the template without quotes: add it to the Node, or use a template without it", kind, key)
	}
	if !isJSON {
		return asJSON(text)
	}
	var value json.RawMessage
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return "", fmt.Errorf("its text is not JSON: %w; expected a JSON value, or the variable without json: for the text", err)
	}
	return text, nil
}
