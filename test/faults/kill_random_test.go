package faults

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/killpoint"
)

const (
	// envRandomKills is how many random cases are played; few if it is not set.
	envRandomKills = "DELEGATED_IPAM_TEST_RANDOM_KILLS"
	// envSeed is the number from which the cases follow; the same one plays the same.
	envSeed = "DELEGATED_IPAM_TEST_SEED"

	fewRandomKills = 20
)

// randomDeath is a case in which any of the three may die: the plugin, the
// sidecar, and the sidecar that starts after that.
type randomDeath struct {
	death
	plugin pluginDeath
}

func TestTheSidecarAndThePluginKilledAtRandom(t *testing.T) {
	t.Parallel()
	needsStrace(t)
	seed, n := number(t, envSeed, 1), number(t, envRandomKills, fewRandomKills)
	t.Logf("%d cases from $%s=%d", n, envSeed, seed)
	visited := recordAll(t, append(scenarios(), manyAtOnce()), killpoint.Plan{})
	slices.SortFunc(visited, func(a, b recorded) int { return cmp.Compare(a.name, b.name) })
	count := newTally(t, "killed at random")
	source := rand.New(rand.NewPCG(uint64(seed), 0))
	for i := range n {
		d := draw(source, visited)
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
func draw(source *rand.Rand, visited []recorded) randomDeath {
	v := visited[source.IntN(len(visited))]
	plans := eachVisit(v.visits)
	d := randomDeath{death: death{scenario: v.scenario, first: plans[source.IntN(len(plans))]}}
	if source.IntN(2) == 0 {
		points := killpoint.All()
		d.second = killpoint.Plan{Point: points[source.IntN(len(points))], Visit: 1 + source.IntN(3)}
	}
	if source.IntN(3) == 0 {
		verbs, calls := []string{"ADD", "DEL", "CHECK"}, []string{"openat", "write", "unlinkat"}
		d.plugin = pluginDeath{verbs[source.IntN(len(verbs))], calls[source.IntN(len(calls))], 1 + source.IntN(16)}
	}
	return d
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
	count.add(killed(first, second, s.forgiving && s.executed()), end)
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("$%s is %q; expected a number", variable, text)
	}
	return n
}
