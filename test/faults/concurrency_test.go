package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const (
	crowdClients = 64
	crowdOwners  = 200
)

func TestManyClientsAtOnceGetAnswersThatFitAndNothingIsLeftOpen(t *testing.T) {
	t.Parallel()
	operations := wantedShare(t).operations()
	newTally(t, concurrency).watchMany(t, operations)
	n := crowdNode(t)
	s := n.Start(t)
	s.Release(t, s.AllocateFor(t, "first")...) // what is opened once is open now
	before := openFiles(t, s)

	c := newCrowd(s.Client, seed(t), crowdOwners, operations)
	c.setServing(true)
	c.run(crowdClients)
	c.judgeHeld(t, n, s)
	c.judge(t, n, s)
	if got := c.count(oracle.Allocate, oracle.Unknown); got != 0 {
		t.Errorf("%d allocates were not answered", got)
	}
	harness.Eventually(t, "every descriptor to be closed", func() error {
		if now := openFiles(t, s); len(now) > len(before) {
			return fmt.Errorf("%d are open, %d were before:\n%q\n%q", len(now), len(before), now, before)
		}
		return nil
	})
}

func TestManyClientsAtOnceGetAnswersThatFitWhileTheSidecarIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	operations := wantedShare(t).operations()
	count := newTally(t, concurrency)
	count.watchMany(t, operations)
	n := crowdNode(t)
	s := n.Launch(t)
	s.WaitReady(t)

	c := newCrowd(s.Client, seed(t), crowdOwners, operations)
	c.spreadEvents(max(5, operations/400))
	c.setServing(true)
	go c.run(crowdClients)
	for range c.due {
		c.setServing(false)
		s.Kill(t)
		s = n.Launch(t)
		s.WaitServing(t)
		c.setServing(true)
	}
	c.judgeHeld(t, n, s)
	c.askEveryOwner()
	s.WaitConsistent(t)
	c.judge(t, n, s)
	count.killed(len(c.eventAt))
	s.Stop(t)
}

func TestManyClientsAtOnceGetAnswersThatFitWhileOneSidecarHandsOverToTheNext(t *testing.T) {
	t.Parallel()
	operations := wantedShare(t).operations() / 2
	newTally(t, concurrency).watchMany(t, operations)
	n := crowdNode(t)
	s := n.Launch(t)
	s.WaitReady(t)

	c := newCrowd(s.Client, seed(t), crowdOwners, operations)
	c.spreadEvents(4)
	c.setServing(true)
	go c.run(crowdClients)
	for range c.due {
		next := n.Launch(t)
		harness.Eventually(t, "the next one to wait", func() error {
			if !strings.Contains(next.Log(), "waiting for the state folder") {
				return errors.New(next.Log())
			}
			return nil
		})
		c.setServing(false) // new questions; those under way go on
		s.Stop(t)
		next.WaitServing(t)
		c.setServing(true)
		s = next
	}
	c.judgeHeld(t, n, s)
	c.askEveryOwner()
	s.WaitConsistent(t)
	c.judge(t, n, s)
	s.Stop(t)
}

// crowdNode has the scripted plugin in the place of host-local: it has a store of
// its own and is fast. What is held needs no CHECK.
func crowdNode(t *testing.T) *harness.Node {
	t.Helper()
	n := nodeWith(t)
	must(t, os.Remove(filepath.Join(n.BinDir, "host-local")))
	plugin := n.InstallScripted(t, "host-local")
	n.Store = func() ([]oracle.Lease, error) { return plugin.Leases("pods") }
	n.Flags = append(n.Flags, "--verify-interval=1h", "--log-level=warning")
	if wantedShare(t) == full {
		n.Program = harness.Failpoints(t) // without the race detector, which has had its turn in the short one
	}
	return n
}

// openFiles is what the sidecar's descriptors lead to (proc_pid_fd(5)).
func openFiles(t *testing.T, s *harness.Sidecar) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", s.PID())
	entries, err := os.ReadDir(dir)
	must(t, err)
	var open []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // closed since the folder was read
		}
		must(t, err)
		open = append(open, target)
	}
	return open
}
