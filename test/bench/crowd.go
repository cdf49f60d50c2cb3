package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// clients is the number of concurrent clients.
	clients = 8
	// pairsPerClient is the number of allocate and release pairs of a client in one run.
	pairsPerClient = 4
)

// manyClients measures pairs of allocate and release per second with concurrent clients, and the
// CPU time of a pair.
func (b *bench) manyClients() error {
	var pairs comparison
	var cpuRow row
	err := b.withBaseline("crowd", nil, func(s *server, plugin *bare) error {
		own := make([]*client, clients)
		for i := range own {
			own[i] = newClient(s.socket)
		}
		var served atomic.Int64
		ours := func(client int, owner string) error {
			ip, _, err := own[client].allocate(owner)
			if err == nil {
				_, err = own[client].release(ip)
			}
			served.Add(1)
			return err
		}
		reference := func(_ int, owner string) error {
			result, _, err := plugin.acquire(owner)
			if err == nil {
				_, err = plugin.del(owner, result)
			}
			return err
		}
		turn := func(into *sample, pair func(int, string) error) func(bool) error {
			return func(counts bool) error {
				took, err := timed(func() error { return runClients(pair) })
				if counts {
					*into = append(*into, clients*pairsPerClient/took.Seconds())
				}
				return err
			}
		}
		before, err := cpuTime(s.cmd.Process.Pid)
		if err != nil {
			return err
		}
		err = alternate(max(b.pairs/10, 5), turn(&pairs.ours, ours), turn(&pairs.reference, reference))
		if err != nil {
			return err
		}
		after, err := cpuTime(s.cmd.Process.Pid)
		cpuRow = single("CPU time per allocate + release, 8 clients, the sidecar's own", "ms", (after.own-before.own)/float64(served.Load()), reportOnly())
		cpuRow.Reference, cpuRow.Theirs = "the plugin's three processes", (after.children-before.children)/float64(served.Load())
		return err
	})
	r := compared("allocate + release, 8 clients", "bare, same verbs, 8 workers", pairs, atLeast(0.80))
	r.Unit = "pairs/s"
	b.report.add(r, cpuRow)
	return err
}

// runClients runs the pairs of all clients concurrently.
func runClients(pair func(client int, owner string) error) error {
	var group errgroup.Group
	for i := range clients {
		group.Go(func() error {
			for range pairsPerClient {
				if err := pair(i, fmt.Sprintf("default/pod-%d", i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// timed runs work and returns its time.
func timed(work func() error) (time.Duration, error) {
	begin := time.Now()
	err := work()
	return time.Since(begin), err
}
