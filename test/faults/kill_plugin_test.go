package faults

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
)

// escapes is how often a plugin may escape its death before that is a failure.
const escapes = 20

func TestThePluginKilledAtEachSystemCallThatWrites(t *testing.T) {
	t.Parallel()
	count := newTally(t, pluginDies)
	for _, sc := range pluginScenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			for _, d := range choose(wantedShare(t), pluginDeaths(t, sc), kindOfDeath) {
				pluginKilled(t, count, sc, d, failpoint.Plan{})
			}
		})
	}
}

func TestThePluginAndTheSidecarKilledTogether(t *testing.T) {
	t.Parallel()
	count := newTally(t, bothKilled)
	for _, sc := range pluginScenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			visits := record(t, sc.scenario, failpoint.Plan{})
			ended, ok := worst(visits)
			if !ok {
				t.Fatal("the scenario calls no plugin")
			}
			runs := lastCall(visits)
			for _, d := range choose(wantedShare(t), pluginDeaths(t, sc), kindOfDeath) {
				pluginKilled(t, count, sc, d, ended)
				pluginKilled(t, count, sc, d, runs)
			}
		})
	}
}

// lastCall is when the last plugin call runs: its process has been started with its
// configuration, or has been told it.
func lastCall(visits []failpoint.Point) failpoint.Plan {
	var last failpoint.Plan
	for _, p := range eachVisit(visits) {
		if p.Point == failpoint.PluginStarted || p.Point == failpoint.PluginTold {
			last = p
		}
	}
	return last
}

// pluginScenario is a scenario and the verb of its last plugin call.
type pluginScenario struct {
	scenario
	verb string
}

// pluginScenarios are those whose last plugin call changes what the plugin holds.
func pluginScenarios() []pluginScenario {
	verbs := map[string]string{
		oneStart:                                "ADD",
		"allocate what the plugin has lost":     "ADD",
		"restore an address":                    "ADD",
		"a start with what the plugin has lost": "ADD",
		"release":                               "DEL",
		"expiry":                                "DEL",
		"a start that retires an owner":         "DEL",
	}
	var out []pluginScenario
	for _, sc := range scenarios() {
		if verb := verbs[sc.name]; verb != "" {
			out = append(out, pluginScenario{sc, verb})
		}
	}
	return out
}

func kindOfDeath(d pluginDeath) string { return d.call }

// pluginDeaths returns how the last plugin call of a scenario dies: at each system
// call by which it writes, or after a few delays where it cannot be traced.
func pluginDeaths(t *testing.T, sc pluginScenario) []pluginDeath {
	t.Helper()
	if !canTrace(t) {
		return delayedDeaths(t, sc.verb)
	}
	s := newScene(t, sc.scenario)
	s.installExecutioner()
	sc.prepare(s)
	s.condemn(pluginDeath{verb: sc.verb})
	sc.act(s)
	s.settle()
	s.end()
	deaths := s.writes(sc.verb)
	if len(deaths) == 0 {
		t.Fatalf("host-local writes nothing in its %s", sc.verb)
	}
	return deaths
}

// pluginKilled is one case: the plugin dies, and the sidecar, too, where there is
// a plan for it. Then everybody asks again.
func pluginKilled(t *testing.T, count *tally, sc pluginScenario, d pluginDeath, plan failpoint.Plan) {
	t.Helper()
	name := sc.name + ", killed at " + strings.TrimSpace(d.String())
	if plan.Visit > 0 {
		name += " and the sidecar at " + plan.String()
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		count.watch(t)
		for range escapes {
			s := newScene(t, sc.scenario)
			dead := s.dieWithPlugin(sc.scenario, d, plan)
			if dead != (plan.Visit > 0) {
				t.Errorf("the sidecar was killed: %t", dead)
			}
			end := s.recover()
			if s.executed() {
				count.killed(howMany(dead, true))
				count.leftEmpty(len(end.Unborn))
				return
			}
			d = d.sooner()
		}
		t.Errorf("host-local has escaped its death %d times", escapes)
	})
}

// dieWithPlugin plays a scenario in which the plugin dies, and tells whether the
// sidecar did, too.
func (s *scene) dieWithPlugin(sc scenario, d pluginDeath, plan failpoint.Plan) bool {
	s.t.Helper()
	s.forgiving = true
	s.installExecutioner()
	sc.prepare(s)
	s.condemn(d)
	s.lay(plan)
	sc.act(s)
	return s.died()
}
