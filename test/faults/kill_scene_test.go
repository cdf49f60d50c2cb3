package faults

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/failpoint"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const (
	// sceneTick is how often a scene looks again; sceneLimit is when it gives up.
	// The second is no bound on how long recovery may take.
	sceneTick  = 2 * time.Millisecond
	sceneLimit = 60 * time.Second
)

// scene is a node whose sidecar has failpoints, and what its clients were told.
type scene struct {
	t       *testing.T
	node    *harness.Node
	flags   []string
	sidecar *harness.Sidecar
	history *oracle.History
	// asked are the requests since the plan was laid.
	asked []request
	// unanswered tells that one of them was not answered.
	unanswered bool
	// forgiving lets requests fail: the plugin is killed, too.
	forgiving bool
	// endsEmpty tells that the scenario leaves nothing held.
	endsEmpty bool
}

func newScene(t *testing.T, sc scenario) *scene {
	t.Helper()
	n := harness.NewNode(t)
	n.Program = harness.Failpoints(t)
	network := sc.network
	if network.Name == "" {
		network = harness.DualStack()
	}
	n.WriteNetwork(t, "05-cilium", network)
	s := &scene{t: t, node: n, flags: sc.flags, history: oracle.NewHistory(), endsEmpty: sc.endsEmpty}
	n.Env = append(n.Env, failpoint.EnvPlan+"="+s.planFile())
	return s
}

func (s *scene) planFile() string { return filepath.Join(s.node.Dir, "plan") }

// lay makes the sidecar count its visits from now on, and die where the plan says.
func (s *scene) lay(p failpoint.Plan) {
	s.t.Helper()
	s.clear()
	s.asked, s.unanswered = nil, false
	if err := os.WriteFile(s.planFile()+".new", []byte(p.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.planFile()+".new", s.planFile()); err != nil {
		s.t.Fatal(err)
	}
}

// clear takes the plan away.
func (s *scene) clear() {
	s.t.Helper()
	for _, file := range []string{s.planFile(), failpoint.VisitsFile(s.planFile())} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.t.Fatal(err)
		}
	}
}

// visits are the points that were reached since the plan was laid, in order.
func (s *scene) visits() []failpoint.Point {
	s.t.Helper()
	data, err := os.ReadFile(failpoint.VisitsFile(s.planFile()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	var visits []failpoint.Point
	for name := range strings.FieldsSeq(string(data)) {
		visits = append(visits, failpoint.Point(name))
	}
	return visits
}

// start runs a sidecar and returns when it answers and has said in its log whether it
// is ready, or is dead: finding that out visits points, so that it must be over in
// each playing of a scenario or in none. It is asked for its list, and not only
// whether it listens: a plugin that was being born when the last one was killed has
// its socket for a moment. Flags win over those of the scenario.
func (s *scene) start(flags ...string) {
	s.t.Helper()
	s.sidecar = s.node.Launch(s.t, slices.Concat(s.flags, flags)...)
	s.until("the sidecar answers", func() error {
		if !s.sidecar.Running() {
			return nil
		}
		if _, err := s.list(); err != nil || strings.Contains(s.sidecar.Log(), "msg=Ready") {
			return err
		}
		// On a busy machine the answer comes after it was waited for: then somebody
		// must ask, who waits for the same one.
		_, err := s.sidecar.Try(http.MethodGet, "/v1/healthz")
		return errors.Join(errors.New("it has not said that it is ready"), err)
	})
}

// kill ends the sidecar outside of any plan.
func (s *scene) kill() {
	s.t.Helper()
	s.sidecar.Kill(s.t)
}

// send asks the sidecar, if it is alive, and notes what the client was told. Else
// the client asks later.
func (s *scene) send(r request) {
	s.t.Helper()
	s.asked = append(s.asked, r)
	if !s.sidecar.Running() {
		s.unanswered = true
		return
	}
	r.sent(s.history)
	a, err := s.sidecar.Try(r.method, r.path, r.header...)
	if err != nil {
		s.unanswered = true
		s.sidecar.Wait(s.t) // the connection was cut by its death
		return
	}
	s.answered(r, a)
}

// sendAtOnce sends requests at the same time.
func (s *scene) sendAtOnce(requests []request) {
	s.t.Helper()
	answers, errs := make([]harness.Response, len(requests)), make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		s.asked = append(s.asked, r)
		r.sent(s.history)
		wg.Go(func() { answers[i], errs[i] = s.sidecar.Try(r.method, r.path, r.header...) })
	}
	wg.Wait()
	for i, r := range requests {
		if errs[i] == nil {
			s.answered(r, answers[i])
			continue
		}
		s.unanswered = true
		s.sidecar.Wait(s.t)
	}
}

// askAgain sends every request once more, as a client does that got no answer; and
// again where it fails because the plugin is killed in this one.
func (s *scene) askAgain() {
	s.t.Helper()
	s.unanswered = false
	for _, r := range s.asked {
		before, a := s.ask(r)
		if s.forgiving && !slices.Contains(r.right, a.Status) {
			before, a = s.ask(r) // a plugin is killed only once
		}
		for _, v := range r.missed(before, a) {
			s.t.Error(v)
		}
	}
}

// ask sends a request to a sidecar that is alive. It returns what was seen before,
// and the answer.
func (s *scene) ask(r request) (oracle.Final, harness.Response) {
	s.t.Helper()
	before := s.seen(s.sidecar.List(s.t))
	r.sent(s.history)
	a := s.sidecar.Do(s.t, r.method, r.path, r.header...)
	s.answered(r, a)
	// While the request waited for its turn, a plugin may have died that worked in the
	// background: what it took for nobody was taken before the request was worked on.
	_, before.Unborn = s.stored()
	return before, a
}

func (s *scene) answered(r request, a harness.Response) {
	s.t.Helper()
	r.answered(s.history, a)
	if !s.forgiving && !slices.Contains(r.right, a.Status) {
		s.t.Errorf("%s %s answered %s; want status %v", r.method, r.path, a, r.right)
	}
}

// releaseAll gives back what an owner has.
func (s *scene) releaseAll(owner string) {
	s.t.Helper()
	for _, ip := range s.history.Has(owner) {
		s.send(release(ip, owner))
	}
}

func (s *scene) until(what string, ask func() error) {
	s.t.Helper()
	tick, limit := time.NewTicker(sceneTick), time.After(sceneLimit)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-limit:
			s.t.Fatalf("gave up waiting until %s: %v", what, err)
		case <-tick.C:
		}
	}
}
