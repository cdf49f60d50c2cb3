package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
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
func (b *bench) withBaseline(name string, work func(s *server, plugin pod)) {
	n := b.newNode(name)
	s := n.daemon()
	defer s.stop()
	work(s, barePod(b.plugins, n.store()+"-bare"))
}

// lifecycle measures an allocation for a new owner and its release.
func (b *bench) lifecycle() {
	b.withBaseline("life", func(s *server, plugin pod) {
		c := alternate(b.pairs, func() []float64 {
			ip, took := s.allocate(owner)
			return []float64{took, s.release(ip)}
		}, func() []float64 {
			var result []byte
			took := timed(func() { result = plugin.acquire("router") })
			return []float64{took, timed(func() { plugin.run("DEL", "router", result) })}
		})
		b.add(
			compared("allocate, new owner (lookup, ADD, two durable writes)", "bare DEL + ADD", c[0], "ratio <= 0.25"),
			compared("release (a durable write, DEL)", "bare DEL", c[1], "ratio <= 0.45"),
		)
	})
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
	s := n.daemon("--verify-interval=0s")
	defer s.stop()
	s.seed(size - 1)
	s.allocate(owner)
	plugin := barePod(b.plugins, n.store())
	result := plugin.acquire("bare")
	c := alternate(b.pairs, func() []float64 {
		_, took := s.allocate(owner)
		return []float64{took}
	}, func() []float64 { return []float64{timed(func() { plugin.run("CHECK", "bare", result) })} })
	b.add(compared(fmt.Sprintf("allocate, held, verified by a lookup, %s leases", thousands(size)), "bare CHECK in the same store", c[0], "ratio <= 0.19"))
}

// heldWithin measures requests for a held address without verification, of a server that does
// nothing, and of Cilium's allocator.
func (b *bench) heldWithin() {
	s := b.newNode("held").daemon(verifyNever)
	defer s.stop()
	s.allocate(owner)
	const held, cilium, goal = "allocate, held, verified within `--verify-interval`", "Cilium's in-memory POST /ipam", "ratio <= 1.00"
	floor := b.compareServer(s, false, os.Args[0], floorCommand)
	b.add(compared(held, "HTTP floor: a server that does nothing", floor, "report"))
	if _, err := os.Stat(b.cilium); errors.Is(err, os.ErrNotExist) {
		b.add(row{name: held, reference: cilium, unit: "not measured: run `make bench-cilium`", goal: goal})
		return
	}
	b.add(compared(held, cilium, b.compareServer(s, true, b.cilium), goal))
}

// compareServer measures requests for a held address and another server, which gets its socket
// as the last argument. With releases each of its allocations is released outside the measured
// time, and ours gets one more request outside of it: both have then just responded.
func (b *bench) compareServer(s *server, releases bool, command ...string) comparison {
	socket := newSocket()
	other := start(socket, os.Stderr, command[0], append(command[1:], socket)...)
	defer other.stop()
	reference := func() []float64 {
		ip, took := other.allocate(owner)
		if releases {
			other.release(ip)
		}
		return []float64{took}
	}
	other.await(func() { reference() })
	return alternate(cheapPairs*b.pairs, func() []float64 {
		_, took := s.allocate(owner)
		if releases {
			s.allocate(owner)
		}
		return []float64{took}
	}, reference)[0]
}

// serveFloor responds to every request on a unix socket with 201 and the same address.
func serveFloor(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusCreated)
		fmt.Fprintln(rw, `{"address":{"ipv4":"10.15.0.2"}}`)
	})}
	return s.Serve(l)
}

// manyClients measures pairs of allocate and release per second with concurrent clients, and the
// CPU time of a pair.
func (b *bench) manyClients() {
	b.withBaseline("crowd", func(s *server, plugin pod) {
		var served atomic.Int64
		before := cpuTime(s.cmd.Process.Pid)
		c := alternate(max(b.pairs/10, 5), perSecond(func(i, _ int) {
			ip, _ := s.allocate(fmt.Sprintf("default/pod-%d", i))
			s.release(ip)
			served.Add(1)
		}), perSecond(func(i, _ int) {
			container := fmt.Sprintf("pod-%d", i)
			plugin.run("DEL", container, plugin.acquire(container))
		}))
		used := cpuTime(s.cmd.Process.Pid) - before
		b.add(
			row{"allocate + release, 8 clients", "bare, same verbs, 8 workers", "pairs/s", c[0], "ratio >= 3.00"},
			single("CPU time per allocate + release, 8 clients", "ms", used/float64(served.Load()), "report"),
		)
	})
}

// perSecond returns a run that measures how often per second all clients do some work.
func perSecond(work func(client, number int)) func() []float64 {
	return func() []float64 {
		took := timed(func() { atOnce(work) })
		return []float64{clients * pairsPerClient * 1000 / took}
	}
}

// atOnce does the work of all clients concurrently, pairsPerClient times each.
func atOnce(work func(client, number int)) {
	concurrently(clients, func(client int) {
		for number := range pairsPerClient {
			work(client, number)
		}
	})
}
