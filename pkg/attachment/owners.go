package attachment

import (
	"fmt"
	"strings"
)

// Owners admits owners by patterns (--owners).
type Owners struct{ patterns []pattern }

// pattern is the texts between the "*" of a pattern: one text stands for itself.
type pattern []string

// ParseOwners reads patterns in which "*" stands for any text, "/" included,
// and everything else for itself: "router", "kube-system/*", "*". No pattern
// admits nobody; an empty pattern is an error.
func ParseOwners(patterns []string) (Owners, error) {
	var o Owners
	for _, p := range patterns {
		if p == "" {
			return Owners{}, fmt.Errorf("an owner pattern is empty; expected a name or a pattern such as router or kube-system/*")
		}
		o.patterns = append(o.patterns, strings.Split(p, "*"))
	}
	return o, nil
}

// Match tells whether a pattern matches the owner.
func (o Owners) Match(owner string) bool {
	for _, p := range o.patterns {
		if p.matches(owner) {
			return true
		}
	}
	return false
}

// matches tells whether the texts follow each other in a name, the first at its
// beginning and the last at its end. Each is taken where it comes first: that leaves
// most for those after it.
func (p pattern) matches(name string) bool {
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
