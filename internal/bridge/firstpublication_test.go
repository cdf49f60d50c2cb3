package bridge

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// CiliumNode and journal of the daemon are lost together, while pods run. The plugin returns to each
// slot the address that it had. The agent drops each endpoint whose address is not in the first
// publication.
func TestFirstPublication(t *testing.T) {
	pods := func(f *fixture, first, last int) {
		for n := first; n <= last; n++ {
			f.podIPs[ip(n)] = true
			f.pods++
		}
	}
	// refuses has a daemon that holds the first slots of 27 and refuses to allocate others.
	refuses := func(err error) func(f *fixture) {
		return func(f *fixture) {
			pods(f, 1, 27)
			f.held[0], f.held[1], f.held[2], f.held[3] = ip(1), ip(2), ip(3), ip(4)
			f.requestErr = err
		}
	}
	busy := &failure{refused: true, reason: reasonDaemonBusy, err: errors.New("the queue is full"), after: time.Second}
	failing := &failure{refused: true, reason: reasonPluginFailed, err: errors.New("ADD failed")}
	for name, tt := range map[string]struct {
		set      func(f *fixture)
		settings func(s *planner.Settings)
		// most is the largest number of addresses, if not all pods have theirs; after is the time of the
		// publication.
		most  int
		after time.Duration
		// listed is when the pending pods are listed, idle when the daemon stops to refuse requests; 0 for
		// never.
		listed, idle time.Duration
	}{
		"27 pods":           {set: func(f *fixture) { pods(f, 1, 27) }},
		"gaps":              {set: func(f *fixture) { pods(f, 3, 3); pods(f, 40, 42); pods(f, 100, 100) }},
		"a later slot":      {set: func(f *fixture) { pods(f, 11, 11) }},
		"listed later":      {set: func(f *fixture) { pods(f, 1, 27); f.podsPending = true }, listed: 20 * time.Second, after: 20 * time.Second},
		"never listed":      {set: func(f *fixture) { pods(f, 1, 27); f.podsPending = true }, most: 19, after: 30 * time.Second},
		"not watched":       {set: func(*fixture) {}, most: 3},
		"other addresses":   {set: func(f *fixture) { pods(f, 300, 319) }, most: 31},
		"one other address": {set: func(f *fixture) { pods(f, 1, 3); pods(f, 3000, 3000); f.capacity = 1000 }, most: 256},
		"exhausted":         {set: func(f *fixture) { pods(f, 1, 27); f.capacity = 10 }, most: 10},
		"max-allocate":      {set: func(f *fixture) { pods(f, 1, 27) }, settings: func(s *planner.Settings) { s.MaxAllocate = 12 }, most: 12},
		"daemon is busy":    {set: refuses(busy), idle: 40 * time.Second, after: 40 * time.Second},
		"daemon stays busy": {set: refuses(busy), most: 4, after: busyPatience},
		"plugin fails":      {set: refuses(failing), most: 4, after: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			f, settings := newFixture(), defaultSettings()
			f.latency = 10 * time.Millisecond
			tt.set(f)
			if tt.settings != nil {
				tt.settings(&settings)
			}
			runController(t, f, settings, func(t *testing.T, _ *metrics) {
				start := time.Now()
				for len(f.pool()) == 0 && time.Since(start) < 2*busyPatience {
					advance(time.Millisecond)
					if time.Since(start) == tt.listed {
						f.update(func() { f.podsPending = false })
					}
					if time.Since(start) == tt.idle {
						f.update(func() { f.requestErr = nil })
					}
				}
				pool := f.pool()
				if after := time.Since(start).Truncate(10 * time.Second); after != tt.after {
					t.Errorf("the first publication is after %s; want %s", after, tt.after)
				}
				if tt.most > 0 {
					between(t, "addresses are in the first publication", len(pool), tt.most, tt.most)
					return
				}
				between(t, "addresses are in the first publication", len(pool), len(f.podIPs)+3, 1000)
				for ip := range f.podIPs {
					if !slices.Contains(pool, ip.String()) {
						t.Errorf("the first publication does not have %s, which a pod has", ip)
					}
				}
			})
		})
	}
}

func (f *fixture) nodePods() nodePods {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.podsPending {
		return nodePods{pending: true}
	}
	return nodePods{count: f.pods, ips: f.podIPs}
}
