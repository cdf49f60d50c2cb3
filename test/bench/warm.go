package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// warmLeases are acquired ahead by the daemons of warmPods, burst is the number of pods that begin at one time.
	warmLeases, burst = 100, 100
	// churn is the number of pods of a steady churn, of which each begins churnPause after the one before and lives for
	// churnLife.
	churn      = 75
	churnPause = 200 * time.Millisecond
	churnLife  = 2 * time.Second
)

// slowPlugin makes a host-local whose ADD and DEL take longer by a time in ms, and returns its directory, in which
// the file "calls" gets a byte for each.
func (b *bench) slowPlugin(takes int) (dir string) {
	dir = filepath.Join(b.dir, fmt.Sprintf("slow-plugins-%d", takes))
	script := fmt.Sprintf("#!/bin/sh\ncase $CNI_COMMAND in ADD|DEL) printf . >>%s/calls; sleep %g;; esac\nexec %s/host-local\n", dir, float64(takes)/1000, b.plugins)
	failIf(os.MkdirAll(dir, 0o755))
	failIf(os.WriteFile(filepath.Join(dir, "host-local"), []byte(script), 0o755))
	return dir
}

// warmNode starts a daemon that has acquired its leases ahead, and returns its pods, and pods of the bare plugin.
func (b *bench) warmNode(name, plugins string) (s *server, ours, reference pod) {
	n, s, ours := b.podNode(name, plugins, fmt.Sprintf("--warm-leases=%d", warmLeases), "--max-plugin-processes=64")
	s.await(func() {
		// Not the store's files: a lease that is on its way there would be replaced once a pod has taken another one.
		if acquired := bytes.Count(must(os.ReadFile(n.log())), []byte("Acquired a lease ahead")); acquired < warmLeases {
			failIf(fmt.Errorf("%d leases", acquired))
		}
	})
	return s, ours, barePod(plugins, n.store()+"-bare")
}

// warmPods measures pods whose leases were acquired ahead, with plugins of 200 ms and of 2 s.
func (b *bench) warmPods() {
	for _, takes := range []int{200, 2000} {
		b.warmPairs(takes, max(b.pairs/10*200/takes, 3))
	}
	b.warmBurst(b.slowPlugin(2000))
	b.warmChurn(b.slowPlugin(2000))
}

func (b *bench) warmPairs(takes, pairs int) {
	name := (time.Duration(takes) * time.Millisecond).String()
	s, ours, reference := b.warmNode("warm-"+name, b.slowPlugin(takes))
	defer s.stop()
	c := alternatePods(ours, reference, 0, pairs, onePod)
	b.add(
		compared("pod with a warm lease: ADD, plugin of "+name, "bare ADD", c[0], "ratio <= 0.02"),
		compared("pod with a warm lease: DEL, plugin of "+name, "bare DEL", c[1], "ratio <= 0.02"),
	)
}

// warmBurst measures when the last one of many pods that begin at one time has its addresses.
func (b *bench) warmBurst(plugins string) {
	s, ours, _ := b.warmNode("warm-burst", plugins)
	defer s.stop()
	took := timed(func() {
		concurrently(burst, func(i int) { ours.call("ADD", fmt.Sprintf("burst-%d", i)) })
	})
	b.add(single(fmt.Sprintf("%d pods at one time with as many warm leases, plugin of 2 s: the last ADD", burst), "ms", took, "<= 1000"))
}

// warmChurn measures the calls of the plugin while pods come and go, and their longest ADD.
func (b *bench) warmChurn(plugins string) {
	s, ours, _ := b.warmNode("warm-churn", plugins)
	defer s.stop()
	calls := func() int { return len(must(os.ReadFile(filepath.Join(plugins, "calls")))) }
	before := calls()
	adds := make([]float64, churn)
	concurrently(churn, func(i int) {
		time.Sleep(time.Duration(i) * churnPause)
		name := fmt.Sprintf("churn-%d", i)
		adds[i] = ours.call("ADD", name)
		time.Sleep(churnLife)
		ours.call("DEL", name)
	})
	b.add(
		single("5 pods per second come and go, plugin of 2 s: the longest ADD", "ms", slices.Max(adds), "<= 500"),
		single("5 pods per second come and go: plugin calls for each pod", "calls", float64(calls()-before)/churn, "<= 0.1"),
	)
}
