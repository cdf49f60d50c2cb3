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

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// waitKilled waits until the sidecar was killed or the state is consistent, and reports
// whether it was killed.
func (f *fixture) waitKilled() bool {
	f.t.Helper()
	f.waitConsistent()
	f.waitRemovalsDurable()
	if f.sidecar.Running() {
		return false
	}
	if code := f.sidecar.Wait(f.t); code != -1 {
		f.t.Fatalf("the sidecar ended with status %d; want it killed", code)
	}
	return true
}

// waitRemovalsDurable waits until the removal of each record is durable, or the sidecar was killed: the
// background visits failpoints for that.
func (f *fixture) waitRemovalsDurable() {
	f.t.Helper()
	plan, err := os.ReadFile(f.planFile())
	if !errors.Is(err, fs.ErrNotExist) {
		harness.Must(f.t, err)
	}
	harness.Eventually(f.t, "removals to be durable", func() error {
		visits := f.visits()
		due := slices.ContainsFunc(plansOf(visits), func(p failpoint.Plan) bool { return p.String() == string(plan) })
		switch {
		case !f.sidecar.Running():
			return nil
		case due:
			return errors.New("the sidecar is about to be killed")
		}
		for _, p := range slices.Backward(visits) {
			switch p {
			case failpoint.RemoveDurable, failpoint.WriteDurable:
				return nil
			case failpoint.RemoveDone:
				return errors.New("the last removal is not durable")
			}
		}
		return nil
	})
}

// recoverAndCheck starts the sidecar again if it was killed. It checks the invariants after the
// recovery, after the clients have repeated their requests, and after the stop, and returns the
// final state.
func (f *fixture) recoverAndCheck() oracle.Snapshot {
	f.t.Helper()
	f.clearPlan()
	if !f.sidecar.Running() {
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

// waitConsistent waits until the recovery is complete and every invariant holds, or the sidecar
// was killed.
func (f *fixture) waitConsistent() {
	f.t.Helper()
	harness.Eventually(f.t, "every invariant to hold", func() error {
		if !f.sidecar.Running() {
			return nil
		}
		list, err := f.list()
		if !f.sidecar.Running() {
			return nil
		}
		if err != nil {
			return err
		}
		return f.check(list)
	})
}

func (f *fixture) list() ([]harness.Attachment, error) {
	resp, err := f.sidecar.Try(http.MethodGet, "/v1/ipam")
	if err != nil {
		return nil, err
	}
	var list []harness.Attachment
	return list, json.Unmarshal(resp.Body, &list)
}

// check returns the violated invariants and the attachments in transition.
func (f *fixture) check(list []harness.Attachment) error {
	f.t.Helper()
	now := f.observe(list)
	var errs []error
	for _, v := range f.history.Check(now) {
		errs = append(errs, v)
	}
	for _, a := range list {
		if inTransition(a, now) || f.endsEmpty && !f.unanswered {
			errs = append(errs, fmt.Errorf("%s is still %s: %s", a.ContainerID, a.State, a.LastError))
		}
	}
	return errors.Join(errs...)
}

// inTransition reports whether an attachment is being released or added. An ADD whose address is
// blocked by an empty file waits for its owner.
func inTransition(a harness.Attachment, now oracle.Snapshot) bool {
	blocked := slices.ContainsFunc(harness.Held([]harness.Attachment{a}), func(h oracle.Listed) bool {
		return slices.Contains(now.Orphaned, h.IP)
	})
	return a.State == "releasing" || a.State == "adding" && !blocked
}

// observe returns the state of the plugin's store, for a list of the sidecar.
func (f *fixture) observe(list []harness.Attachment) oracle.Snapshot {
	f.t.Helper()
	stored, empty := f.stored()
	return oracle.Snapshot{Stored: stored, Listed: harness.Held(list), Orphaned: empty}
}

// stored returns the leases in the plugin's store, and the addresses of its empty files.
func (f *fixture) stored() (leases []oracle.Lease, empty []netip.Addr) {
	f.t.Helper()
	leases, files, err := oracle.HostLocalAfterKill(f.node.StoreDir)
	harness.Must(f.t, err)
	for _, file := range files {
		empty = append(empty, netip.MustParseAddr(filepath.Base(file)))
	}
	return leases, empty
}

// stopAndCheck stops the sidecar, whose journal must equal its last list. The invariants must
// still hold. It returns the final state.
func (f *fixture) stopAndCheck() oracle.Snapshot {
	f.t.Helper()
	list := f.sidecar.List(f.t)
	f.sidecar.Stop(f.t)
	f.node.WantJournal(f.t, list)
	if err := f.check(list); err != nil {
		f.t.Errorf("after the stop: %v", err)
	}
	return f.observe(list)
}

// checkDoctorFindsEmptyFiles runs doctor, which must report exactly the empty files of a killed
// host-local. Without such files it runs only if the plugin may have been killed.
func (f *fixture) checkDoctorFindsEmptyFiles() {
	f.t.Helper()
	want := f.observe(nil).Orphaned
	if !f.pluginKillable && len(want) == 0 {
		return
	}
	out := f.node.Command(f.t, "doctor", "-o", "json")
	var findings []struct {
		Check, State string
		Address      netip.Addr
	}
	if err := json.Unmarshal([]byte(out.Stdout), &findings); err != nil {
		f.t.Fatalf("doctor ended with status %d and printed %q, to stderr %q: %v", out.ExitCode, out.Stdout, out.Stderr, err)
	}
	var got []netip.Addr
	for _, finding := range findings {
		if finding.Check == "stale-lease-files" && finding.State != "ok" {
			got = append(got, finding.Address)
		}
	}
	slices.SortFunc(got, netip.Addr.Compare)
	slices.SortFunc(want, netip.Addr.Compare)
	if !slices.Equal(got, want) {
		f.t.Errorf("doctor reports the empty files of %v; want %v", got, want)
	}
	if len(want) > 0 && out.ExitCode != 1 && out.ExitCode != 3 {
		f.t.Errorf("doctor found empty files and ended with status %d; want 1 or 3", out.ExitCode)
	}
}
