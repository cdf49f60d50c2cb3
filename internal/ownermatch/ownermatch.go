// Package ownermatch matches owners against the patterns of --owners.
package ownermatch

import (
	"errors"
	"regexp"
	"strings"
)

// Patterns is a list of owner patterns. The zero value matches no owner.
type Patterns struct{ all *regexp.Regexp }

// Parse parses patterns in which "*" stands for any text, "/" included, and everything else for
// itself: "router", "kube-system/*", "*". An empty pattern is an error.
func Parse(patterns []string) (Patterns, error) {
	if len(patterns) == 0 {
		return Patterns{}, nil
	}
	var alternatives []string
	for _, text := range patterns {
		if text == "" {
			return Patterns{}, errors.New("an owner pattern is empty; expected a name or a pattern such as router or kube-system/*")
		}
		alternatives = append(alternatives, strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, `.*`))
	}
	all, err := regexp.Compile(`^(?s:` + strings.Join(alternatives, "|") + `)$`) // fails for text that is not UTF-8
	return Patterns{all}, err
}

// Match reports whether one of the patterns matches the owner.
func (p Patterns) Match(owner string) bool { return p.all != nil && p.all.MatchString(owner) }
