package faults

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// envReport names a file to which each test appends its counts, for campaign.sh.
const envReport = "DELEGATED_IPAM_FAULTS_REPORT"

// The classes of faults.
const (
	sidecarKilled   = "sidecar killed at each visit of each failpoint"
	killedAgain     = "sidecar killed again in recovery"
	pluginKilled    = "plugin killed at each system call that writes"
	bothKilled      = "plugin and sidecar killed together"
	killedAtRandom  = "killed at random"
	uninstallKilled = "uninstall killed at each visit of each failpoint"
	fsyncOrder      = "fsync order"
	storage         = "storage faults"
	damagedRecords  = "damaged records"
	faultyPlugin    = "plugin faults"
	concurrency     = "concurrency (a case is an operation)"
	overload        = "overload"
	previousRun     = "previous run"
	reboot          = "reboot"
	accessControl   = "access control"
	lateAtRandom    = "late DELs (a case is an owner)"
	mountsAtRandom  = "mounts (a case is a mount)"
	rebootsAtRandom = "reboots (a case is an owner)"
)

// classes returns the classes in the order of the table.
func classes() []string {
	return []string{
		sidecarKilled, killedAgain, pluginKilled, bothKilled, killedAtRandom, uninstallKilled,
		fsyncOrder, storage, damagedRecords, faultyPlugin,
		concurrency, overload, previousRun, reboot, accessControl,
		lateAtRandom, mountsAtRandom, rebootsAtRandom,
	}
}

// stats counts the cases of a test for a class of faults.
type stats struct {
	class string

	mu                                       sync.Mutex
	cases, kills, violations, empty, skipped int
	busy                                     time.Duration
}

// newStats returns stats that are reported when the test and its subtests have ended.
func newStats(t *testing.T, class string) *stats {
	t.Helper()
	if !slices.Contains(classes(), class) {
		t.Fatalf("%q is not a class of faults", class)
	}
	s := &stats{class: class}
	t.Cleanup(func() { s.report(t) })
	return s
}

// countCase counts a case when its test ends. A failure of any kind is a violation.
func (s *stats) countCase(t *testing.T) { s.countCases(t, 1) }

// countCases counts a test of many cases; its failure is one violation.
func (s *stats) countCases(t *testing.T, cases int) {
	t.Helper()
	began := time.Now()
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy += time.Since(began)
		switch {
		case t.Skipped():
			s.skipped += cases
			return
		case t.Failed():
			s.violations++
		}
		s.cases += cases
	})
}

// addKills counts processes that the test has killed.
func (s *stats) addKills(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills += n
}

func countTrue(values ...bool) int {
	n := 0
	for _, v := range values {
		if v {
			n++
		}
	}
	return n
}

// addEmptyFiles counts address files without a container ID, left by a killed plugin.
func (s *stats) addEmptyFiles(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty += n
}

// report appends a line whose fields campaign.sh reads by position.
func (s *stats) report(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Skipped() && s.skipped == 0 {
		s.skipped = 1
	}
	line := fmt.Sprintf("%d\t%s\t%d\t%d\t%d\t%d\t%d\t%.1f", slices.Index(classes(), s.class),
		s.class, s.cases, s.kills, s.violations, s.empty, s.skipped, s.busy.Seconds())
	t.Log(line)
	file := os.Getenv(envReport)
	if file == "" {
		return
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	harness.Must(t, err)
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	harness.Must(t, err)
}
