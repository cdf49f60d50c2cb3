package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
)

// randomDeath is a case in which any of the three may die: the plugin, the
// sidecar, and the sidecar that starts after that.
type randomDeath struct {
	death
	plugin pluginDeath
}

func TestTheSidecarAndThePluginKilledAtRandom(t *testing.T) {
	t.Parallel()
	count := newTally(t, killedAtRandom)
	dieBy := delayed
	if canTrace(t) {
		dieBy = atSystemCall
	}
	visited := recordAll(t, append(scenarios(), manyAtOnce()), failpoint.Plan{})
	source := rand.New(rand.NewPCG(seed(t), 0))
	for i := range wantedShare(t).randomKills() {
		d := draw(source, visited, dieBy)
		t.Run(fmt.Sprintf("%d: %s", i, d), func(t *testing.T) {
			t.Parallel()
			d.play(t, count)
		})
	}
}

// manyAtOnce is a scenario whose requests come all at once, so that where each of them
// is when the sidecar dies is new every time.
func manyAtOnce() scenario {
	return scenario{
		name:    "requests at once",
		prepare: func(s *scene) { s.start(); s.send(allocation("health", "")) },
		act: func(s *scene) {
			requests := []request{allocation("router", ""), allocation("ingress", ""), allocation("default/pod", ""), restoration("10.15.0.77", "default/other")}
			for _, ip := range s.history.Has("health") {
				requests = append(requests, release(ip, "health"))
			}
			s.sendAtOnce(requests)
		},
	}
}

// draw makes a case up. The second death is at any point that a start may come by.
func draw(source *rand.Rand, visited []recorded, dieBy func(*rand.Rand, string) pluginDeath) randomDeath {
	v := visited[source.IntN(len(visited))]
	plans := eachVisit(v.visits)
	d := randomDeath{death: death{scenario: v.scenario, first: plans[source.IntN(len(plans))]}}
	if source.IntN(2) == 0 {
		points := failpoint.All()
		d.second = failpoint.Plan{Point: points[source.IntN(len(points))], Visit: 1 + source.IntN(3)}
	}
	if source.IntN(3) == 0 {
		verbs := []string{"ADD", "DEL", "CHECK"}
		d.plugin = dieBy(source, verbs[source.IntN(len(verbs))])
	}
	return d
}

// atSystemCall makes up a death of a plugin that is traced.
func atSystemCall(source *rand.Rand, verb string) pluginDeath {
	calls := []string{"openat", "write", "unlinkat"}
	return pluginDeath{verb, calls[source.IntN(len(calls))], 1 + source.IntN(16)}
}

// String names the case.
func (d randomDeath) String() string {
	if d.plugin.call == "" {
		return d.death.String()
	}
	return d.death.String() + ", host-local at " + strings.TrimSpace(d.plugin.String())
}

func (d randomDeath) play(t *testing.T, count *tally) {
	t.Helper()
	count.watch(t)
	s := newScene(t, d.scenario)
	s.forgiving = d.plugin.call != ""
	if s.forgiving {
		s.installExecutioner()
	}
	d.prepare(s)
	if s.forgiving {
		s.condemn(d.plugin)
	}
	first, second := d.death.strike(s)
	end := s.recover()
	count.killed(howMany(first, second, s.forgiving && s.executed()))
	count.leftEmpty(len(end.Unborn))
}
