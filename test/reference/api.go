package main

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/go-openapi/loads"
	"github.com/go-openapi/spec"
)

// operationMark is the mark before an operation.
var operationMark = regexp.MustCompile(`<!-- make generate: ([A-Z]+ /\S+) -->`)

// api returns a part for each operation of swagger.yaml but those of delegated-ipam-cni. An operation that only
// the page has is an error.
func api(page string) (map[string]string, error) {
	loaded, err := loads.Spec("swagger.yaml")
	if err != nil {
		return nil, err
	}
	s := loaded.Spec()
	parts := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(s.Paths.Paths)) {
		if strings.HasPrefix(path, "/cni/") {
			continue
		}
		item := s.Paths.Paths[path]
		for method, op := range map[string]*spec.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodDelete: item.Delete} {
			if op == nil {
				continue
			}
			name := method + " " + path
			parts[name] = about(op) + signature(s, op)
		}
	}
	for _, m := range operationMark.FindAllStringSubmatch(page, -1) {
		if _, ok := parts[m[1]]; !ok {
			return nil, fmt.Errorf("swagger.yaml lacks %s", m[1])
		}
	}
	return parts, nil
}

// about describes what an operation does.
func about(op *spec.Operation) string {
	text := op.Description
	if op.Extensions[extension] == true {
		text = "Extension. " + text
	}
	return wrap(text, "", "") + "\n"
}

// signature describes the parameters and the responses of an operation.
func signature(s *spec.Swagger, op *spec.Operation) string {
	var b strings.Builder
	for _, p := range op.Parameters {
		if ref := p.Ref.String(); ref != "" {
			p = s.Parameters[strings.TrimPrefix(ref, "#/parameters/")]
		}
		b.WriteString(entry(p.Name, p.Extensions, p.In, p.Description))
	}
	for _, code := range slices.Sorted(maps.Keys(op.Responses.StatusCodeResponses)) {
		r := op.Responses.StatusCodeResponses[code]
		kind := ""
		if r.Schema != nil {
			kind = strings.TrimPrefix(object(r.Schema), "Error")
		}
		b.WriteString(entry(fmt.Sprint(code), nil, kind, r.Description))
	}
	return "```text\n" + b.String() + "```\n"
}

const (
	// extension marks in swagger.yaml what Cilium's API lacks.
	extension = "x-delegated-ipam-extension"
	// column is where the description of an entry begins.
	column = 24
)

// star marks an extension.
func star(e spec.Extensions) string {
	if e[extension] == true {
		return "*"
	}
	return ""
}

// object names the object of a schema, or that of its elements; empty for text, numbers and so on.
func object(s *spec.Schema) string {
	if s.Items != nil && s.Items.Schema != nil {
		if name := object(s.Items.Schema); name != "" {
			return "list of " + name
		}
	}
	return strings.TrimPrefix(s.Ref.String(), "#/definitions/")
}

// entry is a name with its description.
func entry(name string, e spec.Extensions, kind, about string) string {
	if kind != "" {
		kind = "[" + kind + "] "
	}
	first := fmt.Sprintf("%-*s", column-1, name+star(e)) + " "
	return wrap(kind+about, first, strings.Repeat(" ", column))
}

// wrap breaks a text into lines of at most 100 characters.
func wrap(text, first, rest string) string {
	var b strings.Builder
	line, empty := first, true
	for _, word := range strings.Fields(text) {
		if !empty && len(line)+len(word) > 100 {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = rest
		}
		line, empty = line+word+" ", false
	}
	return b.String() + strings.TrimRight(line, " ") + "\n"
}
