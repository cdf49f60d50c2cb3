package protocol

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
	duplicate := &rejectedResult{error: errors.New("duplicate"), ip: ip, holder: &Other{}}
	repeatable := &rejectedResult{error: errors.New("duplicate"), ip: ip, holder: &Other{}, repeatable: true}
	unusable := &rejectedResult{error: errors.New("unusable")}
	claimed := Want{Claimed: one}
	all := [][]netip.Addr{both, one, any}
	type verdict string
	const again, pause, less, fails verdict = "again", "again after a pause", "less", "fails"
	for name, c := range map[string]struct {
		try  try
		o    outcome
		want verdict
	}{
		"refused":                               {try{}, outcome{all, true, false, refusal}, less},
		"refused, nothing less":                 {try{}, outcome{all[2:], true, false, refusal}, fails},
		"refused, a DEL failed before":          {try{}, outcome{all[2:], false, false, refusal}, again},
		"CNI's own code":                        {try{}, outcome{all, true, true, &call.Error{Outcome: call.Refused, Code: 11}}, fails},
		"unknown outcome":                       {try{Want: claimed}, outcome{all, true, true, &call.Error{Outcome: call.Unknown}}, fails},
		"journal":                               {try{}, outcome{all, true, false, errors.New("disk full")}, fails},
		"unusable":                              {try{}, outcome{all, true, false, unusable}, less},
		"claimed, others ran":                   {try{Want: claimed}, outcome{all, true, true, refusal}, pause},
		"claimed, others ran, unusable":         {try{Want: claimed}, outcome{all, true, true, unusable}, pause},
		"claimed, others ran too often":         {try{Want: claimed, repeated: MaxRepeats}, outcome{all, true, true, refusal}, less},
		"claimed, any requested":                {try{Want: claimed}, outcome{all[2:], true, true, refusal}, fails},
		"not claimed, others ran":               {try{}, outcome{all, true, true, refusal}, less},
		"duplicate":                             {try{Want: claimed}, outcome{all, true, true, duplicate}, less},
		"duplicate of a lost one":               {try{}, outcome{all[2:], true, false, repeatable}, again},
		"the same one again":                    {try{conflict: ip}, outcome{all[2:], true, false, repeatable}, fails},
		"the same one again, but others wanted": {try{conflict: ip}, outcome{all, true, false, repeatable}, again},
		"duplicates of lost ones too often":     {try{repeated: MaxRepeats}, outcome{all[2:], true, false, repeatable}, fails},
	} {
		t.Run(name, func(t *testing.T) {
			next, err := c.try.judge(c.o)
			got := again
			switch {
			case err != nil:
				got = fails
			case next.pause > 0:
				got = pause
			case next.tried > c.try.tried:
				got = less
			}
			if got != c.want {
				t.Errorf("%s (%v); want %s", got, err, c.want)
			}
		})
	}
}
