package faults

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// envReport names a file to which each class of faults appends its line.
const envReport = "DELEGATED_IPAM_TEST_REPORT"

// tally counts what a class of faults did.
type tally struct {
	class string
	began time.Time

	mu                               sync.Mutex
	cases, kills, violations, unborn int
}

// newTally begins a class; its line is written when the test and its subtests end.
func newTally(t *testing.T, class string) *tally {
	t.Helper()
	c := &tally{class: class, began: time.Now()}
	t.Cleanup(func() { c.report(t) })
	return c
}

// watch counts a case when it ends; one that fails, for whatever reason, is a violation.
func (c *tally) watch(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cases++
		if t.Failed() {
			c.violations++
		}
	})
}

// add counts what died, and the files of addresses that a killed plugin left
// without an ID.
func (c *tally) add(kills int, end oracle.Final) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kills += kills
	c.unborn += len(end.Unborn)
}

func (c *tally) report(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	line := fmt.Sprintf("%s: %d cases, %d kills, %d violations, %d empty files of killed plugins, %.1f s",
		c.class, c.cases, c.kills, c.violations, c.unborn, time.Since(c.began).Seconds())
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
