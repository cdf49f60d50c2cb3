package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

// randomKill is a case in which the plugin, the sidecar and the next sidecar may be killed.
type randomKill struct {
	killCase
	plugin pluginKill
}

// killAtRandom runs cases that the seed determines.
func killAtRandom(t *testing.T, recorded []recordedScenario) {
	st := newStats(t, killedAtRandom)
	drawPluginKill := randomDelay
	if canTrace(t) {
		drawPluginKill = randomSyscall
	}
	source := rand.New(rand.NewPCG(seed(t), 0))
	for i := range sizeFromEnv(t).of(20, 2_000) {
		k := drawKill(source, recorded, drawPluginKill)
		t.Run(fmt.Sprintf("%d: %s", i, k), func(t *testing.T) {
			t.Parallel()
			k.run(t, st)
		})
	}
}

// drawKill draws a case. The second kill is at any failpoint that a start may visit.
func drawKill(source *rand.Rand, recorded []recordedScenario, drawPluginKill func(*rand.Rand, string) pluginKill) randomKill {
	r := recorded[source.IntN(len(recorded))]
	plans := plansOf(r.visits)
	k := randomKill{killCase: killCase{scenario: r.scenario, first: plans[source.IntN(len(plans))]}}
	if source.IntN(2) == 0 {
		points := failpoint.All()
		k.second = failpoint.Plan{Point: points[source.IntN(len(points))], Visit: 1 + source.IntN(3)}
	}
	if source.IntN(3) == 0 {
		verbs := []string{"ADD", "DEL", "CHECK"}
		k.plugin = drawPluginKill(source, verbs[source.IntN(len(verbs))])
	}
	return k
}

// String returns the name of the case.
func (k randomKill) String() string {
	if k.plugin.syscall == "" {
		return k.killCase.String()
	}
	return k.killCase.String() + ", host-local at " + strings.TrimSpace(k.plugin.String())
}

func (k randomKill) run(t *testing.T, st *stats) {
	t.Helper()
	st.countCase(t)
	f := newFixture(t, k.scenario)
	f.pluginKillable = k.plugin.syscall != ""
	if f.pluginKillable {
		f.installKillWrapper()
	}
	k.prepare(f)
	if f.pluginKillable {
		f.setPluginKill(k.plugin)
	}
	first, second := k.killCase.run(f)
	final := f.recoverAndCheck()
	st.addKills(countTrue(first, second, f.pluginKillable && f.pluginWasKilled()))
	st.addEmptyFiles(len(final.Orphaned))
}
