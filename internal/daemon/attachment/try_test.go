package attachment

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// What an acquisition does after a failed ADD: requests that are left after it, or an end.
func TestJudge(t *testing.T) {
	ip := netip.MustParseAddr("10.0.0.1")
	both, one, any := []netip.Addr{ip, netip.MustParseAddr("fd00::1")}, []netip.Addr{ip}, []netip.Addr(nil)
	refusal := &call.Error{Outcome: call.Refused, Code: 100}
	duplicate := &rejectedResult{error: errors.New("duplicate"), holder: &Other{}}
	repeatable := &rejectedResult{error: errors.New("duplicate"), holder: &Other{}, repeatable: true}
	unusable := &rejectedResult{error: errors.New("unusable")}
	claimed := Want{Claimed: one}
	all := [][]netip.Addr{both, one, any}
	type verdict string
	const again, less, fails verdict = "again", "less", "fails"
	for name, c := range map[string]struct {
		try      try
		requests [][]netip.Addr
		deleted  bool
		err      error
		want     verdict
	}{
		"refused":                      {try{}, all, true, refusal, less},
		"refused, nothing less":        {try{}, all[2:], true, refusal, fails},
		"refused, a DEL failed before": {try{}, all[2:], false, refusal, again},
		"CNI's own code":               {try{}, all, true, &call.Error{Outcome: call.Refused, Code: 11}, fails},
		"unknown outcome":              {try{Want: claimed}, all, true, &call.Error{Outcome: call.Unknown}, fails},
		"journal":                      {try{}, all, true, errors.New("disk full"), fails},
		"unusable":                     {try{}, all, true, unusable, less},
		"duplicate":                    {try{Want: claimed}, all, true, duplicate, less},
		"duplicate of a lost one":      {try{}, all[2:], true, repeatable, again},
		"duplicates of lost ones":      {try{repeated: true}, all[2:], true, repeatable, fails},
	} {
		t.Run(name, func(t *testing.T) {
			got := again
			switch {
			case !c.try.judge(c.requests, c.deleted, c.err):
				got = fails
			case c.try.tried > 0:
				got = less
			}
			if got != c.want {
				t.Errorf("%s; want %s", got, c.want)
			}
		})
	}
}
