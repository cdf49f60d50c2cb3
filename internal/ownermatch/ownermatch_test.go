package ownermatch

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name     string
		patterns []string
		owner    string
		want     bool
	}{
		{"name", []string{"router"}, "router", true},
		{"longer name", []string{"router"}, "router2", false},
		{"star matches slashes", []string{"*"}, "kube-system/dns", true},
		{"star in the middle", []string{"kube-*/dns"}, "kube-system/dns", true},
		{"no other special characters", []string{"a.b"}, "axb", false},
		{"one of several", []string{"router", "health"}, "health", true},
		{"no pattern", nil, "router", false},
		{"star matches lines", []string{"*"}, "a\nb", true},
		{"star matches nothing", []string{"kube-system/*"}, "kube-system/", true},
		{"beginning and end do not overlap", []string{"aba*aba"}, "ababa", false},
		{"middle and end do not overlap", []string{"a*b*b"}, "ab", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := Parse(c.patterns)
			if err != nil {
				t.Fatal(err)
			}
			if got := o.Match(c.owner); got != c.want {
				t.Errorf("Match(%q) = %v", c.owner, got)
			}
		})
	}
	if _, err := Parse([]string{""}); err == nil {
		t.Error("an empty pattern was accepted")
	}
}

func TestMatchRegexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab/*]{1,8}`).Draw(t, "pattern")
		owner := rapid.StringMatching(`[ab/]{0,10}`).Draw(t, "owner")
		o, err := Parse([]string{pattern})
		if err != nil {
			t.Fatal(err)
		}
		same := regexp.MustCompile(`\A` + strings.ReplaceAll(pattern, "*", ".*") + `\z`)
		if got, want := o.Match(owner), same.MatchString(owner); got != want {
			t.Fatalf("%q matches %q: %t; the expression %s: %t", pattern, owner, got, same, want)
		}
	})
}
