package faults

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)

// TestKill runs each scenario, which records the failpoints that it visits, and then again
// with a kill at a visit or at a system call of the plugin. After each kill the daemon starts
// again, the clients repeat their requests, and the oracle's invariants must hold.
//
//evidence:design/reliability Failpoints
//evidence:design/reliability Guarantees
func TestKill(t *testing.T) {
	t.Parallel()
	recorded := slices.Concat(recordScenarios(t, scenarios()), recordScenarios(t, programScenarios()))
	deterministic := slices.DeleteFunc(slices.Clone(recorded), func(r recordedScenario) bool { return r.name == concurrent })
	for _, p := range failpoint.All() {
		if p == failpoint.UninstallRemoving || p == failpoint.UninstallRemoved {
			continue // killUninstall
		}
		if p == failpoint.SpoolDone || p == failpoint.SpoolRemoved {
			continue // TestSpooledDelKilled: the spool is filled while no daemon runs
		}
		if p == failpoint.RemovalBegins || p == failpoint.RemovalDurable {
			continue // a moment after the response, or not at all
		}
		if !slices.ContainsFunc(deterministic, func(r recordedScenario) bool { return slices.Contains(r.visits, p) }) {
			t.Errorf("no scenario visits the failpoint %q", p)
		}
	}
	for name, test := range map[string]func(*testing.T){
		"daemon":    func(t *testing.T) { killDaemon(t, deterministic) },
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

// killDaemon kills the daemon at each visit.
func killDaemon(t *testing.T, recorded []recordedScenario) {
	st := newStats(t, daemonKilled)
	var all []killCase
	for _, r := range recorded {
		for _, plan := range plansOf(r.visits) {
			all = append(all, killCase{scenario: r.scenario, first: plan})
		}
	}
	for _, c := range selectCases(t, all, func(c killCase) string { return string(c.first.Point) }) {
		c.runParallel(t, st)
	}
}

// killInRecovery kills the daemon at its worst moment, and the next one at each visit of its start.
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
			for _, c := range selectCases(t, all, func(killCase) string { return r.name }) {
				c.runParallel(t, st)
			}
		})
	}
}

// killPlugin kills the plugin at each system call that writes in the last plugin call of those
// scenarios in which it changes the plugin's store: alone, and with the daemon while that call runs or
// after it has ended.
func killPlugin(t *testing.T, recorded []recordedScenario) {
	alone, both := newStats(t, pluginKilled), newStats(t, bothKilled)
	for _, r := range recorded {
		verb := verbs()[strings.TrimPrefix(r.name, ofProgram)]
		if verb == "" || !strings.HasPrefix(r.name, ofProgram) {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			ended := worstCrash(t, r.visits)
			running := lastVisit(r.visits, failpoint.PluginStarted)
			kills := pluginKills(t, r.scenario, verb)
			for _, k := range selectCases(t, kills, func(k pluginKill) string { return k.syscall }) {
				killCase{scenario: r.scenario, plugin: k}.runParallel(t, alone)
				killCase{scenario: r.scenario, plugin: k, first: ended}.runParallel(t, both)
				killCase{scenario: r.scenario, plugin: k, first: running}.runParallel(t, both)
			}
		})
	}
}

// killAtRandom runs cases that the seed determines, in which the plugin, the daemon and the next
// daemon may be killed, the last one at any failpoint that a start may visit.
func killAtRandom(t *testing.T, recorded []recordedScenario) {
	st := newStats(t, killedAtRandom)
	traced := canTrace(t)
	source := rand.New(rand.NewPCG(seed(t), 0))
	for i := range sized(t, 20, 2_000) {
		r := recorded[source.IntN(len(recorded))]
		c := killCase{scenario: r.scenario, first: draw(source, plansOf(r.visits))}
		if source.IntN(2) == 0 {
			c.second = failpoint.Plan{Point: draw(source, failpoint.All()), Visit: 1 + source.IntN(3)}
		}
		if source.IntN(3) == 0 {
			c.plugin = randomPluginKill(source, draw(source, []string{"ADD", "DEL", "CHECK"}), traced)
		}
		t.Run(fmt.Sprintf("%d: %s", i, c), func(t *testing.T) {
			t.Parallel()
			st.countCases(t, 1)
			c.run(t, st)
		})
	}
}

// ofProgram begins the names of the scenarios in which host-local is a program.
const ofProgram = "program: "

// verbs are the last plugin calls of the scenarios in which that changes the plugin's store.
func verbs() map[string]string {
	return map[string]string{
		newOwner:                      "ADD",
		"allocate a lost address":     "ADD",
		"restore":                     "ADD",
		"start with a lost address":   "ADD",
		"release":                     "DEL",
		"expiration":                  "DEL",
		"start that retires an owner": "DEL",
	}
}

func programScenarios() []scenario {
	var all []scenario
	for _, sc := range scenarios() {
		if verbs()[sc.name] != "" {
			sc.name, sc.flags = ofProgram+sc.name, append(slices.Clone(sc.flags), "--host-local=program")
			all = append(all, sc)
		}
	}
	return all
}

func draw[T any](source *rand.Rand, all []T) T { return all[source.IntN(len(all))] }

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
	for _, points := range [][]failpoint.Point{{failpoint.PluginEnded, failpoint.LeaseSynced}, {failpoint.CommitDurable}, failpoint.All()} {
		if p := lastVisit(visits, points...); p.Visit > 0 {
			return p
		}
	}
	t.Fatal("the scenario visits no failpoint")
	return failpoint.Plan{}
}

// lastVisit returns the last visit of one of the points.
func lastVisit(visits []failpoint.Point, points ...failpoint.Point) (last failpoint.Plan) {
	for _, p := range plansOf(visits) {
		if slices.Contains(points, p.Point) {
			last = p
		}
	}
	return last
}

// killCase is a scenario with the visit at which the daemon is killed, the visit at which the next
// daemon is killed in its start, and the kill of the plugin; each may be zero, for none.
type killCase struct {
	scenario
	first, second failpoint.Plan
	plugin        pluginKill
}

// String returns the name of the case.
func (c killCase) String() string {
	name := c.name + "/" + c.first.String()
	if c.second.Visit > 0 {
		name += " and " + c.second.String()
	}
	if c.plugin.syscall != "" {
		name += ", host-local at " + strings.TrimSpace(c.plugin.String())
	}
	return name
}

// runParallel is run as a parallel subtest, in which each kill must happen; the plugin may escape its own.
func (c killCase) runParallel(t *testing.T, st *stats) {
	t.Run(c.String(), func(t *testing.T) {
		t.Parallel()
		st.countCases(t, 1)
		const maxEscapes = 20
		for range maxEscapes {
			first, second, plugin := c.run(t, st)
			if !happened(first, c.first) || !happened(second, c.second) {
				t.Errorf("the daemon was killed: %t, and again: %t", first, second)
			}
			if plugin == (c.plugin.syscall != "") {
				return
			}
			c.plugin = c.plugin.earlier()
		}
		t.Errorf("host-local escaped its kill %d times", maxEscapes)
	})
}

// happened reports whether a kill was as planned. A removal may be part of another commit.
func happened(killed bool, plan failpoint.Plan) bool {
	return killed == (plan.Visit > 0) || plan.Point == failpoint.RemovalBegins || plan.Point == failpoint.RemovalDurable
}

// run runs the case and the recovery, and reports which of the kills happened.
func (c killCase) run(t *testing.T, st *stats) (first, second, plugin bool) {
	f := newFixture(t, c.scenario)
	f.pluginKillable = c.plugin.syscall != ""
	if f.pluginKillable {
		f.node.WrapPlugin(t, "host-local", killWrapperScript)
	}
	c.prepare(f)
	if f.pluginKillable {
		f.setPluginKill(c.plugin)
	}
	f.setPlan(c.first)
	c.act(f)
	first = f.waitKilled()
	if first && c.second.Visit > 0 {
		requests, unanswered := f.requests, f.unanswered
		f.leaveUnfinished()
		f.setPlan(c.second)
		f.unanswered = unanswered
		f.startAndRetry(requests)
		second = f.waitKilled()
		f.requests = requests // without the requests of startAndRetry
	}
	final := f.recoverAndCheck()
	plugin = f.pluginKillable && f.pluginWasKilled()
	for _, killed := range []bool{first, second, plugin} {
		if killed {
			st.kills.Add(1)
		}
	}
	st.empty.Add(int64(len(final.Orphaned)))
	return first, second, plugin
}

// recordedScenario is a scenario and the failpoints that it visits.
type recordedScenario struct {
	scenario
	visits []failpoint.Point
}

// recordScenarios runs every scenario once without a kill. It returns them sorted by name, so
// that a sample and the cases of a seed are reproducible.
func recordScenarios(t *testing.T, all []scenario) []recordedScenario {
	slices.SortFunc(all, func(a, b scenario) int { return cmp.Compare(a.name, b.name) })
	recorded := make([]recordedScenario, len(all))
	t.Run("recording", func(t *testing.T) {
		for i, sc := range all {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				recorded[i].visits = recordVisits(t, sc, failpoint.Plan{})
			})
		}
	})
	for i, sc := range all {
		recorded[i].scenario = sc
		if recorded[i].visits == nil && !t.Failed() { // -run excludes the subtest
			recorded[i].visits = recordVisits(t, sc, failpoint.Plan{})
		}
	}
	return recorded
}

// recordVisits returns the failpoints that a scenario visits; after a first kill those of the next start.
func recordVisits(t *testing.T, sc scenario, first failpoint.Plan) []failpoint.Point {
	f := newFixture(t, sc)
	sc.prepare(f)
	f.setPlan(first)
	sc.act(f)
	killed := f.waitKilled()
	if killed != (first.Visit > 0) {
		t.Fatalf("with the plan %q the daemon was killed: %t", first, killed)
	}
	if killed {
		requests := f.requests
		f.leaveUnfinished()
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
