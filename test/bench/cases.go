package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// owner is the owner in cases with one client.
	owner = "kube-system/router"
	// verifyNever prevents that a held address is verified again.
	verifyNever = "--verify-interval=24h"

	// clients is the number of concurrent clients.
	clients = 8
	// pairsPerClient is the number of allocate and release pairs of a client in one run.
	pairsPerClient = 4

	// cheapPairs multiplies the pairs of a case that takes a fraction of a millisecond.
	cheapPairs = 10

	// floorCommand runs this program as the server that does nothing.
	floorCommand = "floor"
)

// withBaseline runs work with a daemon on a new node and a bare plugin with a separate store on
// the same file system.
func (b *bench) withBaseline(name string, flags []string, work func(*server, bare)) {
	n := b.newNode(name)
	s := n.daemon(flags...)
	defer s.stop()
	work(s, newBare(b.plugins, n.store()+"-bare"))
}

// lifecycle measures an allocation for a new owner and its release.
func (b *bench) lifecycle() {
	var allocate, release comparison
	b.withBaseline("life", nil, func(s *server, plugin bare) {
		alternate(b.pairs, func() []float64 {
			ip, took := s.allocate(owner)
			return []float64{ms(took), ms(s.release(ip))}
		}, func() []float64 {
			result, took := plugin.acquire(owner)
			return []float64{ms(took), ms(plugin.with("DEL", owner, result))}
		}, &allocate, &release)
	})
	b.report.add(
		compared("allocate, new owner (lookup, ADD, two durable writes)", "bare DEL + ADD", allocate, atMost(0.25)),
		compared("release (a durable write, DEL)", "bare DEL", release, atMost(0.45)),
	)
}

// heldLookedUp measures requests for a held address that a lookup verifies, and the bare
// plugin's CHECK of a lease in the same store: with few and with many leases.
func (b *bench) heldLookedUp() {
	for _, size := range []int{10, 10000} {
		b.heldLookedUpWith(size)
	}
}

func (b *bench) heldLookedUpWith(size int) {
	n := b.newNode(fmt.Sprintf("lookup-%d", size))
	n.seed(size - 1)
	plugin := newBare(b.plugins, n.store())
	s := n.daemon("--verify-interval=0s")
	defer s.stop()
	s.allocate(owner)
	result, _ := plugin.acquire("bench/bare")
	var c comparison
	alternate(b.pairs, func() []float64 {
		_, took := s.allocate(owner)
		return []float64{ms(took)}
	}, func() []float64 { return []float64{ms(plugin.with("CHECK", "bench/bare", result))} }, &c)
	b.report.add(compared(fmt.Sprintf("allocate, held, verified by a lookup, %s leases", thousands(size)), "bare CHECK in the same store", c, atMost(0.19)))
}

// heldWithin measures requests for a held address without verification, of a server that does
// nothing, and of Cilium's allocator.
func (b *bench) heldWithin() {
	b.withBaseline("held", []string{verifyNever}, func(s *server, _ bare) {
		s.allocate(owner)
		const held = "allocate, held, verified within `--verify-interval`"
		floor := compareServer(s, []string{os.Args[0], floorCommand}, cheapPairs*b.pairs, false)
		b.report.add(compared(held, "HTTP floor: a server that does nothing", floor, reportOnly()))
		if _, err := os.Stat(b.cilium); errors.Is(err, os.ErrNotExist) {
			b.report.add(missing(held, "Cilium's in-memory POST /ipam", "not measured: run `make bench-cilium`", atMost(1)))
			return
		}
		cilium := compareServer(s, []string{b.cilium}, cheapPairs*b.pairs, true)
		b.report.add(compared(held, "Cilium's in-memory POST /ipam", cilium, atMost(1)))
	})
}

// compareServer measures requests for a held address and another server, which gets its socket
// as the last argument. With releases each of its allocations is released outside the measured
// time, and ours gets one more request outside of it: both have then just responded.
func compareServer(s *server, command []string, pairs int, releases bool) (c comparison) {
	socket := newSocket()
	other := start(socket, os.Stderr, command[0], append(command[1:], socket)...)
	defer other.stop()
	reference := func() []float64 {
		ip, took := other.allocate(owner)
		if releases {
			other.release(ip)
		}
		return []float64{ms(took)}
	}
	other.await(func() { reference() })
	alternate(pairs, func() []float64 {
		_, took := s.allocate(owner)
		if releases {
			s.allocate(owner)
		}
		return []float64{ms(took)}
	}, reference, &c)
	return c
}

// serveFloor responds to every request on a unix socket with 201 and the same address.
func serveFloor(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	body := []byte(`{"address":{"ipv4":"10.15.0.2"}}` + "\n")
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusCreated)
		_, _ = rw.Write(body) // the client may have disconnected
	})}
	return s.Serve(l)
}

// manyClients measures pairs of allocate and release per second with concurrent clients, and the
// CPU time of a pair.
func (b *bench) manyClients() {
	var pairs comparison
	var cpuRow row
	b.withBaseline("crowd", nil, func(s *server, plugin bare) {
		own := make([]*client, clients)
		for i := range own {
			own[i] = newClient(s.socket)
		}
		var served atomic.Int64
		before := cpuTime(s.cmd.Process.Pid)
		alternate(max(b.pairs/10, 5), perSecond(func(i, _ int) {
			ip, _ := own[i].allocate(fmt.Sprintf("default/pod-%d", i))
			own[i].release(ip)
			served.Add(1)
		}), perSecond(func(i, _ int) {
			owner := fmt.Sprintf("default/pod-%d", i)
			result, _ := plugin.acquire(owner)
			plugin.with("DEL", owner, result)
		}), &pairs)
		after := cpuTime(s.cmd.Process.Pid)
		cpuRow = single("CPU time per allocate + release, 8 clients", "ms", (after-before)/float64(served.Load()), reportOnly())
	})
	r := compared("allocate + release, 8 clients", "bare, same verbs, 8 workers", pairs, atLeast(3))
	r.Unit = "pairs/s"
	b.report.add(r, cpuRow)
}

// perSecond returns a run that measures how often per second all clients do some work.
func perSecond(work func(client, number int)) func() []float64 {
	return func() []float64 {
		took := timed(func() { atOnce(work) })
		return []float64{clients * pairsPerClient / took.Seconds()}
	}
}

// atOnce does the work of all clients concurrently, pairsPerClient times each.
func atOnce(work func(client, number int)) {
	var group errgroup.Group
	for i := range clients {
		group.Go(func() error {
			return catch(func() {
				for number := range pairsPerClient {
					work(i, number)
				}
			})
		})
	}
	failIf(group.Wait())
}
