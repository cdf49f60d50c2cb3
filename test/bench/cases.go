package main

import (
	"errors"
	"fmt"
	"os"
)

// owner is the owner in cases with one client.
const owner = "kube-system/router"

// verifyNever prevents that a held address is verified again.
const verifyNever = "--verify-interval=24h"

// lifecycle measures an allocation for a new owner and its release.
func (b *bench) lifecycle() error {
	var allocate, release comparison
	err := b.withBaseline("life", nil, func(s *server, plugin *bare) error {
		ours := func(counts bool) error {
			ip, took, err := s.allocate(owner)
			if err != nil {
				return err
			}
			back, err := s.release(ip)
			if counts {
				allocate.ours.add(took)
				release.ours.add(back)
			}
			return err
		}
		reference := func(counts bool) error {
			result, took, err := plugin.acquire(owner)
			if err != nil {
				return err
			}
			back, err := plugin.del(owner, result)
			if counts {
				allocate.reference.add(took)
				release.reference.add(back)
			}
			return err
		}
		return alternate(b.pairs, ours, reference)
	})
	b.report.add(
		compared("allocate, new owner (lookup, ADD, two durable writes)", "bare DEL + ADD", allocate, atMost(1.35)),
		compared("release (one durable write)", "bare DEL", release, atMost(1.40)),
	)
	return err
}

// heldLookedUp measures requests for a held address that a lookup verifies, and the bare
// plugin's CHECK of a lease in the same store: with few and with many leases.
func (b *bench) heldLookedUp() error {
	for _, size := range []int{10, 10000} {
		if err := b.heldLookedUpWith(size); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) heldLookedUpWith(size int) error {
	n, err := b.newNode(fmt.Sprintf("lookup-%d", size))
	if err == nil {
		err = n.seed(size - 1)
	}
	if err != nil {
		return err
	}
	plugin, err := newBare(b.plugins, n.store())
	if err != nil {
		return err
	}
	s, err := n.sidecar("--verify-interval=0s")
	if err != nil {
		return err
	}
	err = func() error {
		if _, _, err := s.allocate(owner); err != nil {
			return err
		}
		result, _, err := plugin.acquire("bench/bare")
		if err != nil {
			return err
		}
		var c comparison
		err = alternate(b.pairs, func(counts bool) error {
			_, took, err := s.allocate(owner)
			if counts {
				c.ours.add(took)
			}
			return err
		}, func(counts bool) error {
			took, err := plugin.check("bench/bare", result)
			if counts {
				c.reference.add(took)
			}
			return err
		})
		if err == nil {
			b.report.add(compared(fmt.Sprintf("allocate, held, verified by a lookup, %d leases", size), "bare CHECK in the same store", c, atMost(0.30)))
		}
		return err
	}()
	return errors.Join(err, s.stop())
}

// heldWithin measures requests for a held address without verification, of a server that does
// nothing, and of Cilium's allocator.
func (b *bench) heldWithin() error {
	return b.withBaseline("held", []string{verifyNever}, func(s *server, _ *bare) error {
		if _, _, err := s.allocate(owner); err != nil {
			return err
		}
		floor, err := b.compareServer(s, []string{os.Args[0], floorCommand}, cheapPairs*b.pairs, false)
		if err != nil {
			return err
		}
		const held = "allocate, held, verified within `--verify-interval`"
		b.report.add(compared(held, "HTTP floor: a server that does nothing", floor, reportOnly()))
		if _, err := os.Stat(b.cilium); errors.Is(err, os.ErrNotExist) {
			b.report.add(missing(held, "Cilium's in-memory POST /ipam", "not measured: run `make bench-cilium`", atMost(1)))
			return nil
		}
		cilium, err := b.compareServer(s, []string{b.cilium}, cheapPairs*b.pairs, true)
		if err != nil {
			return err
		}
		b.report.add(compared(held, "Cilium's in-memory POST /ipam", cilium, atMost(1)))
		return nil
	})
}

// cheapPairs multiplies the pairs of a case that takes a fraction of a millisecond.
const cheapPairs = 10

// compareServer measures requests for a held address and another server, which gets its socket
// as the last argument. With releases each of its allocations is released outside the measured
// time, and ours gets one more request outside of it: both have then just responded.
func (b *bench) compareServer(s *server, command []string, pairs int, releases bool) (comparison, error) {
	var c comparison
	socket, err := newSocket()
	if err != nil {
		return c, err
	}
	other, err := start(socket, os.Stderr, command[0], append(command[1:], socket)...)
	if err != nil {
		return c, err
	}
	reference := func(counts bool) error {
		ip, took, err := other.allocate(owner)
		if counts {
			c.reference.add(took)
		}
		if err == nil && releases {
			_, err = other.release(ip)
		}
		return err
	}
	ours := func(counts bool) error {
		_, took, err := s.allocate(owner)
		if counts {
			c.ours.add(took)
		}
		if err == nil && releases {
			_, _, err = s.allocate(owner)
		}
		return err
	}
	err = other.await(func() error { return reference(false) })
	if err == nil {
		err = alternate(pairs, ours, reference)
	}
	if err != nil {
		err = fmt.Errorf("beside %s: %w", command[0], err)
	}
	return c, errors.Join(err, other.stop())
}
