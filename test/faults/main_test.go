// Package faults injects faults of disks, plugins and processes into the real binary and then
// checks the state with the oracle (docs/design/reliability.md).
package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestShippedBinaryHasNoFailpoints(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "delegated-ipam")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, "../../cmd/delegated-ipam")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	shipped, err := os.ReadFile(path)
	check.Must(t, err)
	other, err := os.ReadFile(harness.Failpoints(t))
	check.Must(t, err)
	for _, name := range append(failpoint.All(), failpoint.EnvPlan) {
		if bytes.Contains(shipped, []byte(name)) || !bytes.Contains(other, []byte(name)) {
			t.Errorf("%q is in the shipped binary, or missing in the one with failpoints", name)
		}
	}
}

// needRoot skips a test that acts as another user.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root can act as another user")
	}
}

// needProgram returns the path of a program, without which the test is skipped.
func needProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		harness.Skipf(t, "%v; it is part of util-linux", err)
	}
	return path
}

// nodeWith returns a node with a dual-stack network of the real host-local.
func nodeWith(t testing.TB) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", harness.DualStack())
	return n
}

// stoppedNode returns a node whose stopped daemon holds addresses of two owners.
func stoppedNode(t *testing.T) (n *harness.Node, router, health []string) {
	t.Helper()
	n = nodeWith(t)
	s := n.Start(t)
	router, health = s.AllocateFor(t, "router"), s.AllocateFor(t, "health")
	s.Stop(t)
	return n, router, health
}

// wantHeld wants an allocate of an owner to return the addresses that it holds.
func wantHeld(t *testing.T, s *harness.Daemon, owner string, want []string) {
	t.Helper()
	if got := s.AllocateFor(t, owner); !slices.Equal(got, want) {
		t.Errorf("%s has %q; want %q as before", owner, got, want)
	}
}

// wantNotGiven wants an owner to get none of the addresses of another one.
func wantNotGiven(t *testing.T, s *harness.Daemon, owner string, held []string) {
	t.Helper()
	for _, ip := range s.AllocateFor(t, owner) {
		if slices.Contains(held, ip) {
			t.Errorf("%s is held and was allocated to %s", ip, owner)
		}
	}
}

// wantQuarantined wants health to report a quarantined record for a reason, or none without a reason.
func wantQuarantined(t *testing.T, s *harness.Daemon, reason string) {
	t.Helper()
	got := s.Health(t).DelegatedIPAM.Quarantined
	if reason == "" && len(got) > 0 || reason != "" && (len(got) != 1 || !strings.Contains(got[0].Reason, reason)) {
		t.Errorf("health has the quarantined records %+v; want one with the reason %q, or none without", got, reason)
	}
}

const (
	// envSize is the size of the campaign: a sample of one of sampleEach combinations and the first of
	// each kind, each combination once, or also many at random.
	envSize             = "DELEGATED_IPAM_FAULTS"
	sample, every, full = "", "every", "full"
	sampleEach          = 16

	// envSeed is the seed of everything random but the order of concurrent events.
	envSeed = "DELEGATED_IPAM_FAULTS_SEED"
)

// size returns the size that the environment sets.
func size(t *testing.T) string {
	t.Helper()
	s := os.Getenv(envSize)
	if s != sample && s != every && s != full {
		t.Fatalf("$%s is %q; expected nothing, %q or %q", envSize, s, every, full)
	}
	return s
}

// sized returns the number of random cases.
func sized(t *testing.T, inSample, inFull int) int {
	t.Helper()
	if size(t) == full {
		return inFull
	}
	return inSample
}

// selectCases returns the cases of the size; a sample has the first case of each kind.
func selectCases[T any](t *testing.T, all []T, kind func(T) string) []T {
	t.Helper()
	if size(t) != sample {
		return all
	}
	var selected []T
	seen := map[string]bool{}
	for i, c := range all {
		if k := kind(c); i%sampleEach == 0 || !seen[k] {
			selected = append(selected, c)
			seen[k] = true
		}
	}
	return selected
}

func TestSample(t *testing.T) {
	all := make([]int, 3*sampleEach)
	for i := range all {
		all[i] = i
	}
	for size, want := range map[string][]int{every: all, sample: {0, 5, sampleEach, 2 * sampleEach}} {
		t.Setenv(envSize, size)
		if got := selectCases(t, all, func(i int) string { return strconv.FormatBool(i == 5) }); !slices.Equal(got, want) {
			t.Errorf("of size %q are %v; want %v", size, got, want)
		}
	}
}

// seed returns the seed from the environment, and logs it for the reproduction of a failure.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(envSeed)
	if text == "" {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	check.Must(t, err)
	t.Logf("%s=%d", envSeed, n)
	return n
}

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
