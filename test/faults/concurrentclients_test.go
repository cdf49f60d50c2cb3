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
	clientCount = 64
	ownerCount  = 200
)

//evidence:design/reliability 64 clients concurrently on 200 owners
//evidence:design/reliability Guarantees
func TestConcurrentClients(t *testing.T) {
	t.Parallel()
	operations := sizeFromEnv(t).of(300, 20_000)
	newStats(t, concurrency).countCases(t, operations)
	n := fastNode(t)
	s := n.Start(t)
	s.Release(t, s.AllocateFor(t, "first")...) // opens the files that stay open
	before := openFiles(t, s)

	c := newClients(s.Client, seed(t), ownerCount, operations)
	c.setServing(true)
	c.run(clientCount)
	c.checkHeld(t, n, s)
	c.check(t, n, s)
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

//evidence:design/reliability the same, and the sidecar is killed repeatedly
func TestConcurrentClientsAndKills(t *testing.T) {
	t.Parallel()
	operations := sizeFromEnv(t).of(900, 20_000)
	st := newStats(t, concurrency)
	st.countCases(t, operations)
	n := fastNode(t)
	s := n.Launch(t)
	s.WaitReady(t)

	c := newClients(s.Client, seed(t), ownerCount, operations)
	c.scheduleEvents(max(5, operations/400))
	c.setServing(true)
	go c.run(clientCount)
	for range c.events {
		c.setServing(false)
		s.Kill(t)
		s = n.Launch(t)
		s.WaitServing(t)
		c.setServing(true)
	}
	c.checkHeld(t, n, s)
	c.allocateAll()
	s.WaitConsistent(t)
	c.check(t, n, s)
	st.addKills(len(c.eventAt))
	s.Stop(t)
}

//evidence:design/reliability the same, and one sidecar hands over to the next (a rolling update)
func TestConcurrentClientsAndHandover(t *testing.T) {
	t.Parallel()
	operations := sizeFromEnv(t).of(300, 20_000) / 2
	newStats(t, concurrency).countCases(t, operations)
	n := fastNode(t)
	s := n.Launch(t)
	s.WaitReady(t)

	c := newClients(s.Client, seed(t), ownerCount, operations)
	c.scheduleEvents(4)
	c.setServing(true)
	go c.run(clientCount)
	for range c.events {
		next := n.Launch(t)
		harness.Eventually(t, "the next sidecar to wait", func() error {
			if !strings.Contains(next.Log(), "waiting for the state directory") {
				return errors.New(next.Log())
			}
			return nil
		})
		c.setServing(false) // requests that were sent continue
		s.Stop(t)
		next.WaitServing(t)
		c.setServing(true)
		s = next
	}
	c.checkHeld(t, n, s)
	c.allocateAll()
	s.WaitConsistent(t)
	c.check(t, n, s)
	s.Stop(t)
}

// fastNode returns a node with the scripted plugin, which is fast, as host-local. Held addresses
// are not verified.
func fastNode(t *testing.T) *harness.Node {
	t.Helper()
	n := nodeWith(t)
	harness.Must(t, os.Remove(filepath.Join(n.BinDir, "host-local")))
	plugin := n.InstallScripted(t, "host-local")
	n.Store = func() ([]oracle.Lease, error) { return plugin.Leases("pods") }
	n.Flags = append(n.Flags, "--verify-interval=1h", "--log-level=warning")
	if sizeFromEnv(t) == full {
		n.Program = harness.Failpoints(t) // without the race detector, which the sample uses
	}
	return n
}
