// Package ownermatch matches owners against the patterns of --owners.
package ownermatch

import (
	"errors"
	"strings"
)

// Patterns is a list of owner patterns. The zero value matches no owner.
type Patterns struct{ patterns []pattern }

// pattern holds the literal texts between the "*" of a pattern.
type pattern []string

// Parse parses patterns in which "*" stands for any text, "/" included, and everything else for
// itself: "router", "kube-system/*", "*". An empty pattern is an error.
func Parse(patterns []string) (Patterns, error) {
	var p Patterns
	for _, text := range patterns {
		if text == "" {
			return Patterns{}, errors.New("an owner pattern is empty; expected a name or a pattern such as router or kube-system/*")
		}
		p.patterns = append(p.patterns, strings.Split(text, "*"))
	}
	return p, nil
}

// Match reports whether one of the patterns matches the owner.
func (p Patterns) Match(owner string) bool {
	for _, one := range p.patterns {
		if one.match(owner) {
			return true
		}
	}
	return false
}

// match reports whether the texts follow each other in a name, the first at its beginning and
// the last at its end. Taking each at its first occurrence leaves most for the rest.
func (p pattern) match(name string) bool {
	last := len(p) - 1
	if last == 0 {
		return name == p[0]
	}
	name, ok := strings.CutPrefix(name, p[0])
	for _, text := range p[1:last] {
		if ok {
			_, name, ok = strings.Cut(name, text)
		}
	}
	return ok && strings.HasSuffix(name, p[last])
}
