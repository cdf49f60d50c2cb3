package faults

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// envReport names a file to which each test appends what it did, for campaign.sh.
const envReport = "DELEGATED_IPAM_FAULTS_REPORT"

// The classes of faults.
const (
	sidecarKilled   = "sidecar killed at each visit of each point"
	killedAgain     = "sidecar killed again in recovery"
	pluginDies      = "plugin killed at each system call that writes"
	bothKilled      = "plugin and sidecar killed together"
	killedAtRandom  = "killed at random"
	fsyncOrder      = "fsync order"
	storage         = "storage faults"
	damagedRecords  = "damaged records"
	faultyPlugin    = "plugin faults"
	concurrency     = "concurrency (a case is an operation)"
	overload        = "overload"
	earlierLife     = "an earlier life"
	reboot          = "reboot"
	whoMayCall      = "who may call"
	lateAtRandom    = "late DELs (a case is an owner)"
	mountsAtRandom  = "mounts (a case is a mount)"
	rebootsAtRandom = "reboots (a case is an owner)"
)

// classes are all of them, in the order of the table.
func classes() []string {
	return []string{
		sidecarKilled, killedAgain, pluginDies, bothKilled, killedAtRandom,
		fsyncOrder, storage, damagedRecords, faultyPlugin,
		concurrency, overload, earlierLife, reboot, whoMayCall,
		lateAtRandom, mountsAtRandom, rebootsAtRandom,
	}
}

// tally counts what a test did to a class of faults.
type tally struct {
	class string

	mu                                       sync.Mutex
	cases, kills, violations, empty, skipped int
	busy                                     time.Duration
}

// newTally begins to count; the line is written when the test and its subtests end.
func newTally(t *testing.T, class string) *tally {
	t.Helper()
	if !slices.Contains(classes(), class) {
		t.Fatalf("%q is no class of faults", class)
	}
	c := &tally{class: class}
	t.Cleanup(func() { c.report(t) })
	return c
}

// watch counts a case when it ends; one that fails, for whatever reason, is a violation.
func (c *tally) watch(t *testing.T) { c.watchMany(t, 1) }

// watchMany counts a test that is many cases, and at most one violation.
func (c *tally) watchMany(t *testing.T, cases int) {
	t.Helper()
	began := time.Now()
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.busy += time.Since(began)
		switch {
		case t.Skipped():
			c.skipped += cases
			return
		case t.Failed():
			c.violations++
		}
		c.cases += cases
	})
}

// killed counts processes that the test has killed.
func (c *tally) killed(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kills += n
}

// leftEmpty counts files of addresses that a killed plugin left without an ID.
func (c *tally) leftEmpty(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.empty += n
}

// report appends a line of fields that campaign.sh knows by their place.
func (c *tally) report(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.Skipped() && c.skipped == 0 {
		c.skipped = 1
	}
	line := fmt.Sprintf("%d\t%s\t%d\t%d\t%d\t%d\t%d\t%.1f", slices.Index(classes(), c.class),
		c.class, c.cases, c.kills, c.violations, c.empty, c.skipped, c.busy.Seconds())
	t.Log(line)
	file := os.Getenv(envReport)
	if file == "" {
		return
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		t.Error(err)
	}
}
