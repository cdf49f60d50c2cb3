package attachment

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// A start limits what a clock that was ahead has written, in a form that no later change of the clock reaches.
func TestLoadTimes(t *testing.T) {
	now, delay := time.Now(), time.Minute
	for name, ahead := range map[string]time.Duration{"clock ahead": 365 * 24 * time.Hour, "clock as now": -time.Second} {
		then := now.Add(ahead).Round(0) // as it is read from the disk
		r := Record{
			ContainerID: "a", Owner: "cni/a/eth0", Pool: "default", State: Cooldown, Network: "net", BootID: "boot",
			Result:      call.Result{Addresses: []call.Address{{Prefix: netip.MustParsePrefix("10.0.0.1/24")}}},
			Invocations: []call.Invocation{{Network: "net", Config: []byte(`{}`), AddActsUntil: then}},
			Created:     then, Changed: then, ReleaseAt: then.Add(delay), LateDel: LateDel{Until: then.Add(delay), Seconds: 60},
		}
		s := Load(r, &Options{BootID: "boot", ReleaseDelay: delay}, now, false)
		loaded := s.Rec
		check.True(t, !s.Lost, "%s: a DEL whose ADD was not in use marks the attachment lost", name)
		limit := min(ahead, 0)
		for what, c := range map[string]struct{ got, want time.Time }{
			"Created":   {loaded.Created, now.Add(limit)},
			"Changed":   {loaded.Changed, now.Add(limit)},
			"ReleaseAt": {loaded.ReleaseAt, now.Add(limit + delay)},
		} {
			check.True(t, c.got.Equal(c.want), "%s: %s is %v; want %v", name, what, c.got, c.want)
			check.True(t, strings.Contains(c.got.String(), " m="), "%s: %s %v follows the wall clock", name, what, c.got)
		}
		check.True(t, !loaded.LateDel.Until.After(now.Add(delay)), "%s: the DEL may act until %v", name, loaded.LateDel.Until)
	}
}
