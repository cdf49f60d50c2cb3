package faults

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// envReport names a file to which each test appends its counts, for campaign.sh.
const envReport = "DELEGATED_IPAM_FAULTS_REPORT"

// The classes of faults, with the numbers of their rows in the table.
const (
	daemonKilled    = "10\tdaemon killed at each visit of each failpoint"
	killedAgain     = "11\tdaemon killed again in recovery"
	pluginKilled    = "12\tplugin killed at each system call that writes"
	bothKilled      = "13\tplugin and daemon killed together"
	killedAtRandom  = "14\tkilled at random"
	uninstallKilled = "15\tuninstall killed at each visit of each failpoint"
	fsyncOrder      = "16\tfsync order"
	storage         = "17\tstorage faults"
	damagedRecords  = "18\tdamaged records"
	faultyPlugin    = "19\tplugin faults"
	concurrency     = "20\tconcurrency (a case is an operation)"
	overload        = "21\toverload"
	previousRun     = "22\tprevious run"
	reboot          = "23\treboot"
	accessControl   = "24\taccess control"
	lateAtRandom    = "25\tlate DELs (a case is an owner)"
	mountsAtRandom  = "26\tmounts (a case is a mount)"
	rebootsAtRandom = "27\treboots (a case is an owner)"
	powerLosses     = "28\tpower losses (a case is an owner)"
)

// stats counts the cases of a test for a class of faults. A case that fails is a violation. Empty
// are the address files without a container ID that killed plugins left.
type stats struct {
	class string

	cases, kills, violations, empty, skipped, busyMillis atomic.Int64
}

// newStats returns stats that are reported when the test and its subtests have ended.
func newStats(t *testing.T, class string) *stats {
	s := &stats{class: class}
	t.Cleanup(func() { s.report(t) })
	return s
}

// countCases counts a test of that many cases when it ends; its failure is one violation.
func (s *stats) countCases(t *testing.T, cases int) {
	began := time.Now()
	t.Cleanup(func() {
		s.busyMillis.Add(time.Since(began).Milliseconds())
		switch {
		case t.Skipped():
			s.skipped.Add(int64(cases))
			return
		case t.Failed():
			s.violations.Add(1)
		}
		s.cases.Add(int64(cases))
	})
}

// oneCase makes a test parallel, and a case of a class.
func oneCase(t *testing.T, class string) *stats {
	t.Parallel()
	s := newStats(t, class)
	s.countCases(t, 1)
	return s
}

// eachCase makes a test parallel, and runs a parallel subtest for each case of a class.
func eachCase[C any](t *testing.T, class string, cases map[string]C, test func(*testing.T, *stats, C)) {
	t.Parallel()
	s := newStats(t, class)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.countCases(t, 1)
			test(t, s, c)
		})
	}
}

// report appends a line whose fields campaign.sh reads by position.
func (s *stats) report(t *testing.T) {
	line := fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%.1f", s.class, s.cases.Load(), s.kills.Load(),
		s.violations.Load(), s.empty.Load(), s.skipped.Load(), float64(s.busyMillis.Load())/1000)
	t.Log(line)
	if file := os.Getenv(envReport); file != "" {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		check.Must(t, err)
		_, err = fmt.Fprintln(f, line)
		check.Must(t, errors.Join(err, f.Close()))
	}
}
