package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// clients is how many ask at once.
	clients = 8
	// each is how many pairs of allocate and release one client asks for in a turn.
	each = 4
)

// crowd measures pairs of allocate and release per second with many clients, and the
// CPU time of a pair.
func (b *bench) crowd() error {
	var pairs contest
	var burnt row
	err := b.beside("crowd", nil, func(s *server, plugin *bare) error {
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
				took, err := timed(func() error { return together(pair) })
				if counts {
					*into = append(*into, clients*each/took.Seconds())
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
		burnt = single("CPU time per allocate + release, 8 clients, the sidecar's own", "ms", (after.own-before.own)/float64(served.Load()), reported())
		burnt.Reference, burnt.Theirs = "the plugin's three processes", (after.children-before.children)/float64(served.Load())
		return err
	})
	r := compared("allocate + release, 8 clients", "bare, same verbs, 8 workers", pairs, atLeast(0.80))
	r.Unit = "pairs/s"
	b.report.add(r, burnt)
	return err
}

// together lets every client do its pairs, all clients at once.
func together(pair func(client int, owner string) error) error {
	var group errgroup.Group
	for i := range clients {
		group.Go(func() error {
			for range each {
				if err := pair(i, fmt.Sprintf("default/pod-%d", i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// timed tells how long work took.
func timed(work func() error) (time.Duration, error) {
	begin := time.Now()
	err := work()
	return time.Since(begin), err
}
