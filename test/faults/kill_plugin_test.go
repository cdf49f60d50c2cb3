package faults

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

// maxEscapes is how often a plugin may escape its kill.
const maxEscapes = 20

// killPlugin kills the plugin at each system call that writes: alone, and with the sidecar while
// that call runs or after it has ended.
func killPlugin(t *testing.T, recorded []recordedScenario) {
	alone, both := newStats(t, pluginKilled), newStats(t, bothKilled)
	for _, sc := range pluginScenarios(recorded) {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			ended, running := worstCrash(t, sc.visits), lastCallRunning(sc.visits)
			for _, k := range selectCases(sizeFromEnv(t), pluginKills(t, sc), syscallOf) {
				runPluginKillCase(t, alone, sc, k, failpoint.Plan{})
				runPluginKillCase(t, both, sc, k, ended)
				runPluginKillCase(t, both, sc, k, running)
			}
		})
	}
}

// lastCallRunning returns the visit at which the last plugin call runs: its process was started
// with its configuration, or has received it.
func lastCallRunning(visits []failpoint.Point) failpoint.Plan {
	var last failpoint.Plan
	for _, p := range plansOf(visits) {
		if p.Point == failpoint.PluginStarted || p.Point == failpoint.PluginTold {
			last = p
		}
	}
	return last
}

// pluginScenario is a scenario and the verb of its last plugin call.
type pluginScenario struct {
	recordedScenario
	verb string
}

// pluginScenarios are those whose last plugin call changes the plugin's store.
func pluginScenarios(recorded []recordedScenario) []pluginScenario {
	verbs := map[string]string{
		newOwner:                      "ADD",
		"allocate a lost address":     "ADD",
		"restore":                     "ADD",
		"start with a lost address":   "ADD",
		"release":                     "DEL",
		"expiration":                  "DEL",
		"start that retires an owner": "DEL",
	}
	var out []pluginScenario
	for _, r := range recorded {
		if verb := verbs[r.name]; verb != "" {
			out = append(out, pluginScenario{r, verb})
		}
	}
	return out
}

func syscallOf(k pluginKill) string { return k.syscall }

// pluginKills returns the kills of a scenario's last plugin call: at each system call that
// writes, or after some delays where it cannot be traced.
func pluginKills(t *testing.T, sc pluginScenario) []pluginKill {
	t.Helper()
	if !canTrace(t) {
		return delayKills(t, sc.verb)
	}
	f := newFixture(t, sc.scenario)
	f.installKillWrapper()
	sc.prepare(f)
	f.setPluginKill(pluginKill{verb: sc.verb})
	sc.act(f)
	f.waitConsistent()
	f.stopAndCheck()
	kills := writeCalls(f.pluginTrace(), sc.verb)
	if len(kills) == 0 {
		t.Fatalf("host-local's %s has no system call that writes", sc.verb)
	}
	return kills
}

// runPluginKillCase kills the plugin and, with a plan, the sidecar, as a parallel subtest.
func runPluginKillCase(t *testing.T, st *stats, sc pluginScenario, k pluginKill, plan failpoint.Plan) {
	t.Helper()
	name := strings.TrimSpace(k.String())
	if plan.Visit > 0 {
		name += " and sidecar at " + plan.String()
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		st.countCase(t)
		for range maxEscapes {
			f := newFixture(t, sc.scenario)
			killed := f.runPluginKill(sc.scenario, k, plan)
			if killed != (plan.Visit > 0) {
				t.Errorf("the sidecar was killed: %t", killed)
			}
			final := f.recoverAndCheck()
			if f.pluginWasKilled() {
				st.addKills(countTrue(killed, true))
				st.addEmptyFiles(len(final.Orphaned))
				return
			}
			k = k.earlier()
		}
		t.Errorf("host-local escaped its kill %d times", maxEscapes)
	})
}

// runPluginKill runs a scenario in which the plugin is killed, and reports whether the sidecar
// was killed too.
func (f *fixture) runPluginKill(sc scenario, k pluginKill, plan failpoint.Plan) bool {
	f.t.Helper()
	f.pluginKillable = true
	f.installKillWrapper()
	sc.prepare(f)
	f.setPluginKill(k)
	f.setPlan(plan)
	sc.act(f)
	return f.waitKilled()
}
