package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
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

// slowPlugin makes a host-local whose ADD and DEL take longer by a time, and returns its directory and how often both
// were called until now.
func (b *bench) slowPlugin(takes time.Duration) (dir string, calls func() int) {
	dir = filepath.Join(b.dir, "slow-plugins-"+takes.String())
	count := filepath.Join(dir, "count")
	script := fmt.Sprintf("#!/bin/sh\ncase $CNI_COMMAND in ADD|DEL) echo $CNI_COMMAND >>%s; sleep %g;; esac\nexec %s/host-local\n", count, takes.Seconds(), b.plugins)
	failIf(os.MkdirAll(dir, 0o755))
	failIf(os.WriteFile(filepath.Join(dir, "host-local"), []byte(script), 0o755))
	failIf(os.WriteFile(count, nil, 0o644))
	return dir, func() int { return bytes.Count(must(os.ReadFile(count)), []byte{'\n'}) }
}

// withWarm runs work with pods of a daemon that has acquired its leases ahead, and with pods of the bare plugin.
func (b *bench) withWarm(name, plugins string, work func(ours, reference pod)) {
	o := b.options
	o.plugins = plugins
	n, s, ours := o.podNode(name, fmt.Sprintf("--warm-leases=%d", warmLeases), "--max-plugin-processes=64")
	defer s.stop()
	s.await(func() {
		// Not the store's files: a lease that is on its way there would be replaced once a pod has taken another one.
		if acquired := bytes.Count(must(os.ReadFile(n.log())), []byte("Acquired a lease ahead")); acquired < warmLeases {
			failIf(fmt.Errorf("%d leases", acquired))
		}
	})
	work(ours, barePod(plugins, n.store()+"-bare"))
}

// warmPods measures pods whose leases were acquired ahead, with plugins of 200 ms and of 2 s.
func (b *bench) warmPods() {
	for _, takes := range []time.Duration{200 * time.Millisecond, 2 * time.Second} {
		plugins, _ := b.slowPlugin(takes)
		var add, del comparison
		pairs := max(int(b.pairs/10*200/int(takes.Milliseconds())), 3)
		b.withWarm("warm-"+takes.String(), plugins, eachPod(pairs, &add, &del))
		b.report.add(
			compared(fmt.Sprintf("pod with a warm lease: ADD, plugin of %s", takes), "bare ADD", add, atMost(0.02)),
			compared(fmt.Sprintf("pod with a warm lease: DEL, plugin of %s", takes), "bare DEL", del, atMost(0.02)),
		)
	}
	plugins, calls := b.slowPlugin(2 * time.Second)
	b.withWarm("warm-burst", plugins, func(ours, _ pod) { b.warmBurst(ours) })
	b.withWarm("warm-churn", plugins, func(ours, _ pod) { b.warmChurn(ours, calls) })
}

// warmBurst measures when the last one of many pods that begin at one time has its addresses.
func (b *bench) warmBurst(ours pod) {
	var group errgroup.Group
	took := timed(func() {
		for i := range burst {
			group.Go(func() error { return catch(func() { ours.call("ADD", fmt.Sprintf("burst-%d", i)) }) })
		}
		failIf(group.Wait())
	})
	b.report.add(single(fmt.Sprintf("%d pods at one time with as many warm leases, plugin of 2 s: the last ADD", burst), "ms", ms(took), below(1000)))
}

// warmChurn measures the calls of the plugin while pods come and go, and their longest ADD.
func (b *bench) warmChurn(ours pod, calls func() int) {
	before := calls()
	var longest atomic.Int64
	var group errgroup.Group
	for i := range churn {
		group.Go(func() error {
			return catch(func() {
				name := fmt.Sprintf("churn-%d", i)
				took := ours.call("ADD", name)
				for last := longest.Load(); int64(took) > last && !longest.CompareAndSwap(last, int64(took)); last = longest.Load() {
				}
				time.Sleep(churnLife)
				ours.call("DEL", name)
			})
		})
		time.Sleep(churnPause)
	}
	failIf(group.Wait())
	b.report.add(
		single("5 pods per second come and go, plugin of 2 s: the longest ADD", "ms", ms(time.Duration(longest.Load())), below(500)),
		single("5 pods per second come and go: plugin calls for each pod", "calls", float64(calls()-before)/churn, goal{"<= 0.1", func(r row) bool { return r.Ours <= 0.1 }}),
	)
}
