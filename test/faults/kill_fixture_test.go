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

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// fixture is a node whose sidecar has failpoints, and the history of its clients.
type fixture struct {
	t       *testing.T
	node    *harness.Node
	flags   []string
	sidecar *harness.Sidecar
	history *oracle.History
	// requests are those since the plan was set.
	requests []request
	// unanswered means that one of them got no response.
	unanswered bool
	// pluginKillable tolerates failed requests, because the plugin is killed too.
	pluginKillable bool
	// endsEmpty means that the scenario leaves no attachment.
	endsEmpty bool
}

func newFixture(t *testing.T, sc scenario) *fixture {
	t.Helper()
	n := harness.NewNode(t)
	n.Program = harness.Failpoints(t)
	network := sc.network
	if network.Name == "" {
		network = harness.DualStack()
	}
	n.WriteNetwork(t, "05-cilium", network)
	f := &fixture{t: t, node: n, flags: sc.flags, history: oracle.NewHistory(), endsEmpty: sc.endsEmpty}
	n.Env = append(n.Env, failpoint.EnvPlan+"="+f.planFile())
	return f
}

func (f *fixture) planFile() string { return filepath.Join(f.node.Dir, "plan") }

// setPlan makes the sidecar record its visits from now on, and end by SIGKILL at the plan's.
func (f *fixture) setPlan(p failpoint.Plan) {
	f.t.Helper()
	f.clearPlan()
	f.requests, f.unanswered = nil, false
	harness.Must(f.t, errors.Join(os.WriteFile(f.planFile()+".new", []byte(p.String()), 0o600), os.Rename(f.planFile()+".new", f.planFile())))
}

func (f *fixture) clearPlan() {
	f.t.Helper()
	for _, file := range []string{f.planFile(), failpoint.VisitsFile(f.planFile())} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.t.Fatal(err)
		}
	}
}

// visits returns the failpoints that were visited since the plan was set, in order.
func (f *fixture) visits() []failpoint.Point {
	f.t.Helper()
	data, err := os.ReadFile(failpoint.VisitsFile(f.planFile()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	var visits []failpoint.Point
	for name := range strings.FieldsSeq(string(data)) {
		visits = append(visits, failpoint.Point(name))
	}
	return visits
}

// start starts a sidecar and returns when it has responded and has logged that it is ready, or was
// killed: its readiness checks visit failpoints, so they must be complete in every run of a
// scenario. A response is required, because a plugin process that was being forked when the last
// sidecar was killed keeps the socket open for a moment. Flags override the flags of the scenario.
func (f *fixture) start(flags ...string) {
	f.t.Helper()
	f.sidecar = f.node.Launch(f.t, slices.Concat(f.flags, flags)...)
	harness.Eventually(f.t, "the sidecar to respond", func() error {
		if !f.sidecar.Running() {
			return nil
		}
		if _, err := f.list(); err != nil || strings.Contains(f.sidecar.Log(), "msg=Ready") {
			return err
		}
		// On a busy machine readiness may be reported before the checks are complete; another
		// request waits for them.
		_, err := f.sidecar.Try(http.MethodGet, "/v1/healthz")
		return errors.Join(errors.New("the sidecar has not logged that it is ready"), err)
	})
}

// kill kills the sidecar without a plan.
func (f *fixture) kill() {
	f.t.Helper()
	f.sidecar.Kill(f.t)
}

// send sends a request to the sidecar, unless that was killed, and records the response. A
// request without a response is repeated by retryAll.
func (f *fixture) send(r request) {
	f.t.Helper()
	f.sendConcurrently([]request{r})
}

// sendConcurrently is send for concurrent requests.
func (f *fixture) sendConcurrently(requests []request) {
	f.t.Helper()
	f.requests = append(f.requests, requests...)
	if !f.sidecar.Running() {
		f.unanswered = true
		return
	}
	responses, errs := make([]harness.Response, len(requests)), make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		r.recordSent(f.history)
		wg.Go(func() { responses[i], errs[i] = f.sidecar.Try(r.method, r.path, r.header...) })
	}
	wg.Wait()
	for i, r := range requests {
		if errs[i] == nil {
			f.recordResponse(r, responses[i])
			continue
		}
		f.unanswered = true
		f.sidecar.Wait(f.t) // its end closed the connection
	}
}

// releaseAll releases the addresses of an owner.
func (f *fixture) releaseAll(owner string) {
	f.t.Helper()
	for _, ip := range f.history.Addresses(owner) {
		f.send(release(ip, owner))
	}
}

// retryAll sends every request again, as a client without a response does, and once more if it
// fails because the plugin is killed.
func (f *fixture) retryAll() {
	f.t.Helper()
	f.unanswered = false
	for _, r := range f.requests {
		before, resp := f.retry(r)
		if f.pluginKillable && !slices.Contains(r.wantStatus, resp.Status) {
			before, resp = f.retry(r) // the plugin is killed only once
		}
		for _, v := range r.missing(before, resp) {
			f.t.Error(v)
		}
	}
}

// retry sends a request to a running sidecar. It returns the state before it, and the response.
func (f *fixture) retry(r request) (oracle.Snapshot, harness.Response) {
	f.t.Helper()
	before := f.observe(f.sidecar.List(f.t))
	r.recordSent(f.history)
	resp := f.sidecar.Do(f.t, r.method, r.path, r.header...)
	f.recordResponse(r, resp)
	// While the request was queued, a plugin call in the background may have been killed: its
	// empty files precede the processing of the request.
	_, before.Orphaned = f.stored()
	return before, resp
}

func (f *fixture) recordResponse(r request, resp harness.Response) {
	f.t.Helper()
	r.recordResponse(f.history, resp)
	if !f.pluginKillable && !slices.Contains(r.wantStatus, resp.Status) {
		f.t.Errorf("%s %s answered %s; want status %v", r.method, r.path, resp, r.wantStatus)
	}
}

// leaveOneTempFile leaves one temporary file for the next start to remove. After a kill their
// number is random, because the journal is probed concurrently. Without a directory there is none.
func (f *fixture) leaveOneTempFile() {
	f.t.Helper()
	dir := attachments(f.node)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, ".*.json[0-9]*"))
	harness.Must(f.t, err)
	for _, file := range files {
		harness.Must(f.t, os.Remove(file))
	}
	harness.Must(f.t, os.WriteFile(filepath.Join(dir, ".left.json1"), nil, 0o600))
}

// startAndRetry starts a sidecar whose clients allocate their addresses again, including addresses whose
// response they missed. So an address is verified during a request instead of in the
// background, and only once.
func (f *fixture) startAndRetry(requests []request) {
	f.t.Helper()
	f.start("--verify-interval=1h")
	owners := f.history.Owners()
	for _, owner := range owners {
		f.send(allocation(owner, ""))
	}
	for _, r := range requests {
		if !slices.Contains(owners, r.owner) && f.holds(r.owner) {
			f.send(r)
		}
	}
}

// holds reports whether the list has a held attachment of an owner; false without a response.
func (f *fixture) holds(owner string) bool {
	list, err := f.list()
	return err == nil && slices.ContainsFunc(list, func(a harness.Attachment) bool {
		return a.Owner == owner && a.State == "held"
	})
}
