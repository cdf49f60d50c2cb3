package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// fixture is a node whose daemon has failpoints, and the history of its clients.
type fixture struct {
	t       *testing.T
	node    *harness.Node
	flags   []string
	daemon  *harness.Daemon
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
	n := nodeWith(t)
	n.Program = harness.Failpoints(t)
	if sc.network.Name != "" {
		n.WriteNetwork(t, "05-cilium", sc.network)
	}
	f := &fixture{t: t, node: n, flags: sc.flags, history: oracle.NewHistory(), endsEmpty: sc.endsEmpty}
	n.Env = append(n.Env, failpoint.EnvPlan+"="+f.planFile())
	return f
}

func (f *fixture) planFile() string { return filepath.Join(f.node.Dir, "plan") }

// setPlan makes the daemon record its visits from now on, and end by SIGKILL at the plan's.
func (f *fixture) setPlan(p failpoint.Plan) {
	f.clearPlan()
	f.requests, f.unanswered = nil, false
	f.writePlan(f.planFile(), p.String())
}

// writePlan writes a file atomically.
func (f *fixture) writePlan(file, text string) {
	f.t.Helper()
	check.Must(f.t, errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)))
}

func (f *fixture) clearPlan() {
	f.t.Helper()
	for _, file := range []string{f.planFile(), failpoint.VisitsFile(f.planFile())} {
		check.Must(f.t, os.RemoveAll(file))
	}
}

// read returns the content of a file; empty if it does not exist.
func (f *fixture) read(file string) string {
	f.t.Helper()
	data, err := os.ReadFile(file)
	if !errors.Is(err, fs.ErrNotExist) {
		check.Must(f.t, err)
	}
	return string(data)
}

// visits returns the failpoints that were visited since the plan was set, in order.
func (f *fixture) visits() []failpoint.Point {
	var visits []failpoint.Point
	for name := range strings.FieldsSeq(f.read(failpoint.VisitsFile(f.planFile()))) {
		visits = append(visits, failpoint.Point(name))
	}
	return visits
}

// start starts a daemon and returns when it has responded and has logged that it is ready, or was
// killed: its readiness checks visit failpoints, so they must be complete in every run of a
// scenario. A response is required, because a plugin process that was being forked when the last
// daemon was killed keeps the socket open for a moment. Flags override the flags of the scenario.
func (f *fixture) start(flags ...string) {
	f.t.Helper()
	f.daemon = f.node.Launch(f.t, slices.Concat(f.flags, flags)...)
	harness.Eventually(f.t, "the daemon to respond", func() error {
		if !f.daemon.Running() {
			return nil
		}
		if _, err := f.daemon.TryList(); err != nil || strings.Contains(f.daemon.Log(), "msg=Ready") {
			return err
		}
		// On a busy machine it may be ready before the checks are complete; this request waits for them.
		_, err := f.daemon.Try(http.MethodGet, "/v1/healthz")
		return errors.Join(errors.New("the daemon has not logged that it is ready"), err)
	})
}

// kill kills the daemon without a plan.
func (f *fixture) kill() { f.daemon.Kill(f.t) }

// send sends requests concurrently to the daemon, unless that was killed, and records the responses. A
// request without a response is repeated by retryAll.
func (f *fixture) send(requests ...request) {
	f.requests = append(f.requests, requests...)
	if !f.daemon.Running() {
		f.unanswered = true
		return
	}
	responses, errs := make([]harness.Response, len(requests)), make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		r.recordSent(f.history)
		wg.Go(func() { responses[i], errs[i] = f.daemon.Try(r.method, r.path, r.header...) })
	}
	wg.Wait()
	for i, r := range requests {
		if errs[i] == nil {
			f.recordResponse(r, responses[i])
			continue
		}
		f.unanswered = true
		f.daemon.Wait(f.t) // its end closed the connection
	}
}

// releaseAll releases the addresses of an owner.
func (f *fixture) releaseAll(owner string) {
	for _, ip := range f.history.Addresses(owner) {
		f.send(release(ip, owner))
	}
}

// retryAll sends every request again, and once more if it fails because the plugin is killed.
func (f *fixture) retryAll() {
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

// retry sends a request to a running daemon. It returns the state before it, and the response.
func (f *fixture) retry(r request) (oracle.Snapshot, harness.Response) {
	before := f.observe(f.daemon.List(f.t))
	r.recordSent(f.history)
	resp := f.daemon.Do(f.t, r.method, r.path, r.header...)
	f.recordResponse(r, resp)
	// While the request was queued, a plugin call in the background may have been killed: its
	// empty files precede the processing of the request.
	before.Orphaned = f.observe(nil).Orphaned
	return before, resp
}

func (f *fixture) recordResponse(r request, resp harness.Response) {
	r.recordResponse(f.history, resp)
	if !f.pluginKillable && !slices.Contains(r.wantStatus, resp.Status) {
		f.t.Errorf("%s %s answered %s; want status %v", r.method, r.path, resp, r.wantStatus)
	}
}

// leaveUnfinished leaves an unfinished journal for the next start to remove, as some kills do. Without a directory there is
// none.
func (f *fixture) leaveUnfinished() {
	if err := os.WriteFile(journalFile(f.node)+".new", []byte("x"), 0o600); !errors.Is(err, fs.ErrNotExist) {
		check.Must(f.t, err)
	}
}

// startAndRetry starts a daemon whose clients allocate their addresses again, even if they missed the
// response, so that an address is verified once, and not in the background.
func (f *fixture) startAndRetry(requests []request) {
	f.start("--verify-interval=1h")
	owners := f.history.Owners()
	for _, owner := range owners {
		f.send(allocation(owner, ""))
	}
	for _, r := range requests {
		if slices.Contains(owners, r.owner) {
			continue
		}
		list, _ := f.daemon.TryList() // none without a response
		if slices.ContainsFunc(list, func(a harness.Attachment) bool { return a.Owner == r.owner && a.State == "held" }) {
			f.send(r)
		}
	}
}

// waitKilled waits for a kill of the daemon or a consistent state, and reports whether it was killed.
func (f *fixture) waitKilled() bool {
	f.t.Helper()
	f.waitConsistent()
	if f.daemon.Running() {
		return false
	}
	if code := f.daemon.Wait(f.t); code != -1 {
		f.t.Fatalf("the daemon ended with status %d; want it killed", code)
	}
	return true
}

// recoverAndCheck starts the daemon again if it was killed. It checks the invariants after the recovery,
// after the repeated requests and after the stop, and returns the final state.
func (f *fixture) recoverAndCheck() oracle.Snapshot {
	f.t.Helper()
	f.clearPlan()
	if !f.daemon.Running() {
		f.start()
	}
	for f.waitKilled() { // by a plan that it read before clearPlan
		f.start()
	}
	f.retryAll()
	f.waitConsistent()
	f.checkDoctorFindsEmptyFiles()
	return f.stopAndCheck()
}

// waitConsistent waits until every invariant holds after the recovery, or the daemon was killed.
func (f *fixture) waitConsistent() {
	f.t.Helper()
	harness.Eventually(f.t, "every invariant to hold", func() error {
		list, err := f.daemon.TryList()
		if !f.daemon.Running() {
			return nil
		}
		if err != nil {
			return err
		}
		return f.check(list)
	})
}

// check returns the violated invariants and the attachments in transition.
func (f *fixture) check(list []harness.Attachment) error {
	err := checkState(f.history, list, f.observe(list))
	if f.endsEmpty && !f.unanswered && len(list) > 0 {
		err = errors.Join(err, fmt.Errorf("attachments are left: %+v", list))
	}
	return err
}

// checkState returns the violated invariants, and the attachments that are being released or added. An
// ADD whose address is blocked by an empty file waits for its owner.
func checkState(h *oracle.History, list []harness.Attachment, now oracle.Snapshot) error {
	var errs []error
	for _, v := range h.Check(now) {
		errs = append(errs, v)
	}
	for _, a := range list {
		blocked := slices.ContainsFunc(harness.Held([]harness.Attachment{a}), func(h oracle.Listed) bool {
			return slices.Contains(now.Orphaned, h.IP)
		})
		if a.State == "releasing" || a.State == "adding" && !blocked {
			errs = append(errs, fmt.Errorf("%s is still %s: %s", a.ContainerID, a.State, a.LastError))
		}
	}
	return errors.Join(errs...)
}

// observe returns the state of the plugin's store, for a list of the daemon.
func (f *fixture) observe(list []harness.Attachment) oracle.Snapshot {
	leases, files, err := oracle.HostLocalAfterKill(f.node.StoreDir)
	check.Must(f.t, err)
	var empty []netip.Addr
	for _, file := range files {
		empty = append(empty, netip.MustParseAddr(filepath.Base(file)))
	}
	return oracle.Snapshot{Stored: leases, Listed: harness.Held(list), Orphaned: empty}
}

// stopAndCheck stops the daemon, whose journal must equal its last list. It returns the final state.
func (f *fixture) stopAndCheck() oracle.Snapshot {
	list := f.daemon.List(f.t)
	f.daemon.Stop(f.t)
	f.node.WantJournal(f.t, list)
	if err := f.check(list); err != nil {
		f.t.Errorf("after the stop: %v", err)
	}
	return f.observe(list)
}

// checkDoctorFindsEmptyFiles runs doctor, which must report exactly the empty files of a killed
// host-local. Without such files it runs only if the plugin may have been killed.
func (f *fixture) checkDoctorFindsEmptyFiles() {
	want := f.observe(nil).Orphaned
	if !f.pluginKillable && len(want) == 0 {
		return
	}
	out := f.node.Command(f.t, "doctor", "-o", "json")
	var findings []struct {
		Check, State string
		Address      netip.Addr
	}
	check.Must(f.t, json.Unmarshal([]byte(out.Stdout), &findings))
	var got []netip.Addr
	for _, finding := range findings {
		if finding.Check == "stale-lease-files" && finding.State != "ok" {
			got = append(got, finding.Address)
		}
	}
	slices.SortFunc(got, netip.Addr.Compare)
	slices.SortFunc(want, netip.Addr.Compare)
	if !slices.Equal(got, want) || len(want) > 0 && out.ExitCode != 1 && out.ExitCode != 3 {
		f.t.Errorf("doctor ended with status %d and reports the empty files of %v; want those of %v", out.ExitCode, got, want)
	}
}
