package ownermatch

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAnOwnerIsAdmittedByItsPattern(t *testing.T) {
	cases := []struct {
		name     string
		patterns []string
		owner    string
		admitted bool
	}{
		{"a name admits itself", []string{"router"}, "router", true},
		{"a name admits no longer one", []string{"router"}, "router2", false},
		{"a star stands for any text with slashes", []string{"*"}, "kube-system/dns", true},
		{"a star in the middle", []string{"kube-*/dns"}, "kube-system/dns", true},
		{"other signs stand for themselves", []string{"a.b"}, "axb", false},
		{"one of several", []string{"router", "health"}, "health", true},
		{"no pattern admits nobody", nil, "router", false},
		{"a star spans lines", []string{"*"}, "a\nb", true},
		{"a star stands for nothing, too", []string{"kube-system/*"}, "kube-system/", true},
		{"beginning and end do not share a letter", []string{"aba*aba"}, "ababa", false},
		{"a text between stars comes before the end", []string{"a*b*b"}, "ab", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o, err := Parse(c.patterns)
			if err != nil {
				t.Fatal(err)
			}
			if got := o.Match(c.owner); got != c.admitted {
				t.Errorf("Admits(%q) = %v", c.owner, got)
			}
		})
	}
	if _, err := Parse([]string{""}); err == nil {
		t.Error("an empty pattern was taken")
	}
}

func TestAPatternAdmitsWhatTheRegularExpressionForItMatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab/*]{1,8}`).Draw(t, "pattern")
		owner := rapid.StringMatching(`[ab/]{0,10}`).Draw(t, "owner")
		o, err := Parse([]string{pattern})
		if err != nil {
			t.Fatal(err)
		}
		same := regexp.MustCompile(`\A` + strings.ReplaceAll(pattern, "*", ".*") + `\z`)
		if got, want := o.Match(owner), same.MatchString(owner); got != want {
			t.Fatalf("%q admits %q: %t; the expression %s says %t", pattern, owner, got, same, want)
		}
	})
}
