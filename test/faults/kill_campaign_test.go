package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
)

func TestTheSidecarKilledAtEveryVisitOfEveryPoint(t *testing.T) {
	t.Parallel()
	visited := recordAll(t, scenarios(), failpoint.Plan{})
	for _, p := range failpoint.All() {
		if !slices.ContainsFunc(visited, func(v recorded) bool { return slices.Contains(v.visits, p) }) {
			t.Errorf("no scenario reaches the point %q", p)
		}
	}
	count := newTally(t, sidecarKilled)
	for _, d := range choose(wantedShare(t), firstDeaths(visited), func(d death) string { return string(d.first.Point) }) {
		killAt(t, count, d)
	}
}

func TestTheSidecarKilledAgainInTheRecoveryFromEachCrash(t *testing.T) {
	t.Parallel()
	count := newTally(t, killedAgain)
	for _, v := range recordAll(t, scenarios(), failpoint.Plan{}) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			first, ok := worst(v.visits)
			if !ok {
				t.Fatal("it visits no point to die at")
			}
			deaths := secondDeaths(v.scenario, first, record(t, v.scenario, first))
			for _, d := range choose(wantedShare(t), deaths, func(death) string { return v.name }) {
				killAt(t, count, d)
			}
		})
	}
}

// firstDeaths are all deaths in what was recorded.
func firstDeaths(visited []recorded) []death {
	var all []death
	for _, v := range visited {
		for _, plan := range eachVisit(v.visits) {
			all = append(all, death{scenario: v.scenario, first: plan})
		}
	}
	return all
}

// secondDeaths are all deaths in the recovery from a first one that count.
func secondDeaths(sc scenario, first failpoint.Plan, visits []failpoint.Point) []death {
	var all []death
	for _, plan := range eachVisit(visits) {
		if !beforeRecords(plan.Point) || sc.name == oneStart {
			all = append(all, death{scenario: sc, first: first, second: plan})
		}
	}
	return all
}

// oneStart is the scenario in whose recovery every visit counts. What a start
// does before it looks at a record is the same in all others.
const oneStart = "allocate for a new owner"

// beforeRecords tells whether a point comes before the first record in a start.
func beforeRecords(p failpoint.Point) bool {
	return strings.HasPrefix(string(p), "folder.") || strings.HasPrefix(string(p), "lock.")
}

// worst is the crash after which the plugin has done what the journal does not
// know of yet: at the end of the last plugin call. Where no plugin is called, it is
// the one after which the journal knows what no client was told: at the end of the
// last write; and where nothing is written, the last of all.
func worst(visits []failpoint.Point) (failpoint.Plan, bool) {
	plans := eachVisit(visits)
	for _, bad := range []failpoint.Point{failpoint.PluginEnded, failpoint.WriteDurable} {
		for _, p := range slices.Backward(plans) {
			if p.Point == bad {
				return p, true
			}
		}
	}
	if len(plans) == 0 {
		return failpoint.Plan{}, false
	}
	return plans[len(plans)-1], true
}

// killAt is one case, in parallel with others.
func killAt(t *testing.T, count *tally, d death) {
	t.Helper()
	t.Run(d.String(), func(t *testing.T) {
		t.Parallel()
		count.watch(t)
		s := newScene(t, d.scenario)
		d.prepare(s)
		first, second := d.strike(s)
		if !first || second != (d.second.Visit > 0) {
			t.Errorf("the sidecar was killed as planned: %t, and again: %t", first, second)
		}
		count.killed(howMany(first, second))
		count.leftEmpty(len(s.recover().Unborn))
	})
}

func howMany(deaths ...bool) int {
	n := 0
	for _, dead := range deaths {
		if dead {
			n++
		}
	}
	return n
}

// String names the case.
func (d death) String() string {
	name := fmt.Sprintf("%s, killed at %s", d.name, d.first)
	if d.second.Visit > 0 {
		name += fmt.Sprintf(" and again at %s", d.second)
	}
	return name
}

// recorded is a scenario and the points that it visits.
type recorded struct {
	scenario
	visits []failpoint.Point
}

// recordAll plays every scenario once without a death. It returns them by name:
// a sample, and what a seed draws, are to be the same each time.
func recordAll(t *testing.T, all []scenario, first failpoint.Plan) []recorded {
	t.Helper()
	var mu sync.Mutex
	var out []recorded
	t.Run("undisturbed", func(t *testing.T) {
		for _, sc := range all {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				visits := record(t, sc, first)
				mu.Lock()
				defer mu.Unlock()
				out = append(out, recorded{sc, visits})
			})
		}
	})
	slices.SortFunc(out, func(a, b recorded) int { return cmp.Compare(a.name, b.name) })
	return out
}
