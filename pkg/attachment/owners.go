package attachment

import (
	"fmt"
	"regexp"
	"strings"
)

// Owners admits owners by patterns (--owners).
type Owners struct{ patterns []*regexp.Regexp }

// ParseOwners reads patterns in which "*" stands for any text, "/" included,
// and everything else for itself: "router", "kube-system/*", "*". No pattern
// admits nobody; an empty pattern is an error.
func ParseOwners(patterns []string) (Owners, error) {
	var o Owners
	for _, p := range patterns {
		if p == "" {
			return Owners{}, fmt.Errorf("an owner pattern is empty; expected a name or a pattern such as router or kube-system/*")
		}
		parts := strings.Split(p, "*")
		for i, part := range parts {
			parts[i] = regexp.QuoteMeta(part)
		}
		re, err := regexp.Compile(`(?s)\A` + strings.Join(parts, `.*`) + `\z`)
		if err != nil {
			return Owners{}, fmt.Errorf("owner pattern %q: %w", p, err)
		}
		o.patterns = append(o.patterns, re)
	}
	return o, nil
}

// Admits tells whether a pattern matches the owner.
func (o Owners) Admits(owner string) bool {
	for _, re := range o.patterns {
		if re.MatchString(owner) {
			return true
		}
	}
	return false
}
