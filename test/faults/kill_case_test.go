package faults

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// death is a scenario and where the sidecar dies in it, and where in the start
// that follows; the zero plan for not at all.
type death struct {
	scenario
	first, second failpoint.Plan
}

// strike plays the scenario that the scene is prepared for up to its deaths. It
// tells whether each was reached.
func (d death) strike(s *scene) (first, second bool) {
	s.t.Helper()
	s.lay(d.first)
	d.act(s)
	first = s.died()
	if !first || d.second == (failpoint.Plan{}) {
		return first, false
	}
	asked, unanswered := s.asked, s.unanswered
	s.leaveOneFile()
	s.lay(d.second)
	s.unanswered = unanswered
	s.startAgain(asked)
	second = s.died()
	s.asked = asked // what the start was asked besides is no part of the scenario
	return first, second
}

// leaveOneFile leaves the next start one file to remove that is no record yet. How
// many there are after a death is chance: the journal may be tried at that moment.
// Where there is no folder yet, there is none.
func (s *scene) leaveOneFile() {
	s.t.Helper()
	dir := filepath.Join(s.node.StateDir, "attachments")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, ".*.json[0-9]*"))
	must(s.t, err)
	for _, file := range files {
		must(s.t, os.Remove(file))
	}
	must(s.t, os.WriteFile(filepath.Join(dir, ".left.json1"), nil, 0o600))
}

// startAgain starts a sidecar whose clients ask for what they have, also for what
// they had asked for and were never told. The question whether that still stands is
// then put to the plugin before their answers, not unseen in the background; and
// only once, whoever comes first.
func (s *scene) startAgain(asked []request) {
	s.t.Helper()
	s.start("--verify-interval=1h")
	owners := s.history.Owners()
	for _, owner := range owners {
		s.send(allocation(owner, ""))
	}
	for _, r := range asked {
		if !slices.Contains(owners, r.owner) && s.holds(r.owner) {
			s.send(r)
		}
	}
}

// holds tells whether the list says that an owner holds something; a dead sidecar
// says nothing.
func (s *scene) holds(owner string) bool {
	list, err := s.list()
	return err == nil && slices.ContainsFunc(list, func(a harness.Attachment) bool {
		return a.Owner == owner && a.State == "held"
	})
}

// died waits until the sidecar is dead, or has nothing left to die in.
func (s *scene) died() bool {
	s.t.Helper()
	s.settle()
	if s.sidecar.Running() {
		return false
	}
	if code := s.sidecar.Wait(s.t); code != -1 {
		s.t.Fatalf("the sidecar ended by itself with status %d", code)
	}
	return true
}

// recover starts the sidecar again where it is dead, and holds everything against
// the oracle: when recovery has settled, when every client has asked again, and
// when nothing runs any more. It returns what is seen in the end.
func (s *scene) recover() oracle.Final {
	s.t.Helper()
	s.clear()
	if !s.sidecar.Running() {
		s.start()
	}
	for s.died() { // of a death that was on its way when the plan was taken away
		s.start()
	}
	s.askAgain()
	s.settle()
	s.checkStaleLeaseFiles()
	return s.end()
}

// record returns the points that a scenario visits; those of the start that
// follows, if there is a first death.
func record(t *testing.T, sc scenario, first failpoint.Plan) []failpoint.Point {
	t.Helper()
	s := newScene(t, sc)
	sc.prepare(s)
	s.lay(first)
	sc.act(s)
	if dead := s.died(); dead != (first != failpoint.Plan{}) {
		t.Fatalf("the sidecar is dead: %t, with the plan %q", dead, first)
	}
	if first != (failpoint.Plan{}) {
		asked := s.asked
		s.leaveOneFile()
		s.lay(failpoint.Plan{})
		s.startAgain(asked)
		s.settle()
	}
	visits := s.visits()
	s.recover()
	return visits
}

// eachVisit returns a plan for each visit.
func eachVisit(visits []failpoint.Point) []failpoint.Plan {
	count := map[failpoint.Point]int{}
	plans := make([]failpoint.Plan, len(visits))
	for i, p := range visits {
		count[p]++
		plans[i] = failpoint.Plan{Point: p, Visit: count[p]}
	}
	return plans
}
