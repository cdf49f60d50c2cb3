// Package render makes the CNI network configuration of one node from a template that all nodes
// share.
package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
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
		value, err := expand(literal, isKey(rest), n)
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

// checkSyntax checks that a template is one JSON value.
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

// line returns the line of an offset, counted from 1.
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

// isKey reports whether the string before the rest of a JSON document is the key of an object.
func isKey(rest string) bool { return strings.HasPrefix(strings.TrimLeft(rest, " \t\r\n"), ":") }

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
