package main

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// clients is how many ask at once.
	clients = 8
	// each is how many pairs of allocate and release one client asks for in a turn.
	each = 4
)

// crowd measures pairs of allocate and release per second with many clients.
func (b *bench) crowd() error {
	var pairs contest
	err := b.beside("crowd", nil, func(s *server, plugin *bare) error {
		own := make([]*client, clients)
		for i := range own {
			own[i] = newClient(s.socket)
		}
		ours := func(client int, owner string) error {
			ip, _, err := own[client].allocate(owner)
			if err == nil {
				_, err = own[client].release(ip)
			}
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
		return alternate(max(b.pairs/10, 5), turn(&pairs.ours, ours), turn(&pairs.reference, reference))
	})
	r := compared("allocate + release, 8 clients", "bare, same verbs, 8 workers", pairs, atLeast(0.80))
	r.Unit = "pairs/s"
	b.report.add(r)
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
