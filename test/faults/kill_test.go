package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

// TestKill runs each scenario, which records the failpoints that it visits, and then again
// with a kill at a visit or at a system call of the plugin. After each kill the sidecar starts
// again, the clients repeat their requests, and the oracle's invariants must hold.
//
//evidence:design/reliability Failpoints
//evidence:design/reliability Guarantees
func TestKill(t *testing.T) {
	t.Parallel()
	recorded := recordScenarios(t, append(scenarios(), concurrentRequests()))
	deterministic := slices.DeleteFunc(slices.Clone(recorded), func(r recordedScenario) bool { return r.name == concurrentRequests().name })
	for _, p := range failpoint.All() {
		if p == failpoint.UninstallRemoving || p == failpoint.UninstallRemoved {
			continue // killUninstall
		}
		if !slices.ContainsFunc(deterministic, func(r recordedScenario) bool { return slices.Contains(r.visits, p) }) {
			t.Errorf("no scenario visits the failpoint %q", p)
		}
	}
	for name, test := range map[string]func(*testing.T){
		"sidecar":   func(t *testing.T) { killSidecar(t, deterministic) },
		"recovery":  func(t *testing.T) { killInRecovery(t, deterministic) },
		"plugin":    func(t *testing.T) { killPlugin(t, deterministic) },
		"random":    func(t *testing.T) { killAtRandom(t, recorded) },
		"uninstall": killUninstall,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// killSidecar kills the sidecar at each visit.
func killSidecar(t *testing.T, recorded []recordedScenario) {
	st := newStats(t, sidecarKilled)
	var all []killCase
	for _, r := range recorded {
		for _, plan := range plansOf(r.visits) {
			all = append(all, killCase{scenario: r.scenario, first: plan})
		}
	}
	for _, c := range selectCases(sizeFromEnv(t), all, func(c killCase) string { return string(c.first.Point) }) {
		c.runParallel(t, st)
	}
}

// killInRecovery kills the sidecar at its worst moment, and the next one at each visit of its
// start.
func killInRecovery(t *testing.T, recorded []recordedScenario) {
	st := newStats(t, killedAgain)
	for _, r := range recorded {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			first := worstCrash(t, r.visits)
			var all []killCase
			for _, plan := range plansOf(recordVisits(t, r.scenario, first)) {
				// Until it reads the first record, the start is the same in all scenarios.
				if !precedesRecords(plan.Point) || r.name == newOwner {
					all = append(all, killCase{scenario: r.scenario, first: first, second: plan})
				}
			}
			for _, c := range selectCases(sizeFromEnv(t), all, func(killCase) string { return r.name }) {
				c.runParallel(t, st)
			}
		})
	}
}

// precedesRecords reports whether a start visits a failpoint before it reads a record.
func precedesRecords(p failpoint.Point) bool {
	switch p {
	case failpoint.DirMaking, failpoint.DirMade, failpoint.DirDurable, failpoint.DirTightening, failpoint.DirTightened,
		failpoint.LockOpening, failpoint.LockOpened, failpoint.LockNaming, failpoint.LockNamed, failpoint.LockCut:
		return true
	}
	return false
}

// worstCrash returns the visit at which the plugin is furthest ahead of the journal: the end of
// the last plugin call. Without one it is the end of the last write, which no client knows of,
// and without a write the last visit.
func worstCrash(t *testing.T, visits []failpoint.Point) failpoint.Plan {
	t.Helper()
	plans := plansOf(visits)
	if len(plans) == 0 {
		t.Fatal("the scenario visits no failpoint")
	}
	for _, point := range []failpoint.Point{failpoint.PluginEnded, failpoint.WriteDurable} {
		for _, p := range slices.Backward(plans) {
			if p.Point == point {
				return p
			}
		}
	}
	return plans[len(plans)-1]
}

// killCase is a scenario, the visit at which the sidecar is killed, and the visit at which the
// next sidecar is killed in its start; the zero plan for none.
type killCase struct {
	scenario
	first, second failpoint.Plan
}

// String returns the name of the case.
func (c killCase) String() string {
	name := fmt.Sprintf("%s/%s", c.name, c.first)
	if c.second.Visit > 0 {
		name += fmt.Sprintf(" and %s", c.second)
	}
	return name
}

// runParallel runs the case as a parallel subtest.
func (c killCase) runParallel(t *testing.T, st *stats) {
	t.Helper()
	t.Run(c.String(), func(t *testing.T) {
		t.Parallel()
		st.countCase(t)
		f := newFixture(t, c.scenario)
		c.prepare(f)
		first, second := c.run(f)
		if !first || second != (c.second.Visit > 0) {
			t.Errorf("the sidecar was killed as planned: %t, and again: %t", first, second)
		}
		st.addKills(countTrue(first, second))
		st.addEmptyFiles(len(f.recoverAndCheck().Orphaned))
	})
}

// run runs the prepared scenario up to its kills, and reports which of them happened.
func (c killCase) run(f *fixture) (first, second bool) {
	f.t.Helper()
	f.setPlan(c.first)
	c.act(f)
	first = f.waitKilled()
	if !first || c.second == (failpoint.Plan{}) {
		return first, false
	}
	requests, unanswered := f.requests, f.unanswered
	f.leaveOneTempFile()
	f.setPlan(c.second)
	f.unanswered = unanswered
	f.startAndRetry(requests)
	second = f.waitKilled()
	f.requests = requests // without the requests of startAndRetry
	return first, second
}

// recordedScenario is a scenario and the failpoints that it visits.
type recordedScenario struct {
	scenario
	visits []failpoint.Point
}

// recordScenarios runs every scenario once without a kill. It returns them sorted by name, so
// that a sample and the cases of a seed are reproducible.
func recordScenarios(t *testing.T, all []scenario) []recordedScenario {
	t.Helper()
	var mu sync.Mutex
	visits := map[string][]failpoint.Point{}
	t.Run("recording", func(t *testing.T) {
		for _, sc := range all {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				v := recordVisits(t, sc, failpoint.Plan{})
				mu.Lock()
				defer mu.Unlock()
				visits[sc.name] = v
			})
		}
	})
	var recorded []recordedScenario
	for _, sc := range all {
		if visits[sc.name] == nil && !t.Failed() { // -run excludes the subtest
			visits[sc.name] = recordVisits(t, sc, failpoint.Plan{})
		}
		recorded = append(recorded, recordedScenario{sc, visits[sc.name]})
	}
	slices.SortFunc(recorded, func(a, b recordedScenario) int { return cmp.Compare(a.name, b.name) })
	return recorded
}

// recordVisits returns the failpoints that a scenario visits; with a first kill the failpoints of
// the start that follows.
func recordVisits(t *testing.T, sc scenario, first failpoint.Plan) []failpoint.Point {
	t.Helper()
	f := newFixture(t, sc)
	sc.prepare(f)
	f.setPlan(first)
	sc.act(f)
	if killed := f.waitKilled(); killed != (first != failpoint.Plan{}) {
		t.Fatalf("with the plan %q the sidecar was killed: %t", first, killed)
	}
	if first != (failpoint.Plan{}) {
		requests := f.requests
		f.leaveOneTempFile()
		f.setPlan(failpoint.Plan{})
		f.startAndRetry(requests)
		f.waitConsistent()
	}
	visits := f.visits()
	f.recoverAndCheck()
	return visits
}

// plansOf returns a plan for each visit.
func plansOf(visits []failpoint.Point) []failpoint.Plan {
	count := map[failpoint.Point]int{}
	var plans []failpoint.Plan
	for _, p := range visits {
		count[p]++
		if count[p] > 1 && strings.HasPrefix(string(p), "probe.") {
			continue // repeated after a time, which a quicker run may not take
		}
		plans = append(plans, failpoint.Plan{Point: p, Visit: count[p]})
	}
	return plans
}
