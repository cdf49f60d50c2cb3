package sidecar

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/cachedprobe"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

// A good result of a plugin or of the journal is reused for goodTTL, a bad one for badTTL,
// so that a recovery is noticed soon.
const (
	goodTTL = 5 * time.Second
	badTTL  = time.Second
)

func ttl(good bool) time.Duration {
	if good {
		return goodTTL
	}
	return badTTL
}

// poolProbes are the probes of the pools' plugins.
type poolProbes struct {
	runner *plugin.Runner
	locks  *nodelock.Locks
	// running counts the probes in progress.
	running *sync.WaitGroup
	// timeout is how long a plugin that has responded before may take to respond again.
	timeout time.Duration

	mu     sync.Mutex
	byPool map[string]poolProbe
}

// poolProbe probes the plugin of a pool with one CNI configuration.
type poolProbe struct {
	network call.Network
	*cachedprobe.Probe[pluginStatus]
}

// pluginStatus is the result of a pool's probe.
type pluginStatus struct {
	httpapi.PoolReport
	// invocation is that of a new ADD, as far as it is known.
	invocation call.Invocation
}

func newPoolProbes(r *plugin.Runner, l *nodelock.Locks, running *sync.WaitGroup, timeout time.Duration) *poolProbes {
	return &poolProbes{runner: r, locks: l, running: running, timeout: timeout, byPool: map[string]poolProbe{}}
}

// refresh returns the probe of a pool's plugin, refreshed. Another configuration has
// another probe: results with the previous one do not apply to it.
func (p *poolProbes) refresh(pool string, n call.Network) *cachedprobe.Probe[pluginStatus] {
	p.mu.Lock()
	defer p.mu.Unlock()
	probe, ok := p.byPool[pool]
	if !ok || !probe.network.Equal(n) {
		probe = poolProbe{n, &cachedprobe.Probe[pluginStatus]{
			Run:        func() pluginStatus { return p.run(n) },
			TTL:        func(s pluginStatus) time.Duration { return ttl(s.Error == "" && s.NotReady == "") },
			StuckAfter: p.timeout,
			Running:    p.running,
		}}
		p.byPool[pool] = probe
	}
	probe.Refresh()
	return probe.Probe
}

// run checks whether a pool's plugin can be used. It reads the executable and calls
// STATUS and, unless the versions are known, VERSION: each may take long.
func (p *poolProbes) run(n call.Network) pluginStatus {
	s := pluginStatus{PoolReport: httpapi.PoolReport{Plugin: n.IPAMType}}
	if err := p.locks.Acquire(n.Name, nodelock.QueryTimeout); err != nil {
		s.Error = err.Error()
		return s
	}
	ctx := context.Background()
	c, err := p.runner.NewInvocation(ctx, n, "", "")
	s.Profile = c.Profile // known even if the plugin cannot be used
	if err != nil {
		s.Error = err.Error()
		return s
	}
	s.invocation = c
	s.Binary, s.CNIVersion, s.PluginVersions = c.Binary, c.CNIVersion, p.runner.Versions(c.Binary)
	if err := p.runner.Status(ctx, c); err != nil {
		s.NotReady = err.Error()
	}
	return s
}

// pool returns the report of a pool: its current configuration, and the status of its
// plugin if that is known in time.
func (r *reporter) pool(ctx context.Context, pool string) (httpapi.PoolReport, cachedprobe.State) {
	s := r.conf.Status(pool)
	n, err := r.conf.Network(pool)
	if err != nil {
		return httpapi.PoolReport{Pool: pool, Error: err.Error(), Since: s.Since}, cachedprobe.Fresh
	}
	status, state := r.plugins.refresh(pool, n).Result(ctx)
	p := status.PoolReport
	if p.Binary != "" { // not cached: an ADD may have changed it since
		p.Verification = httpapi.Verification(r.runner.Verification(status.invocation))
	}
	if state != cachedprobe.Fresh {
		p = httpapi.PoolReport{Plugin: n.IPAMType, NotReady: fmt.Sprintf("plugin %s does not respond to VERSION or STATUS", n.IPAMType)}
	}
	p.Pool, p.Network, p.File, p.Since = pool, s.Network, s.File, s.Since
	if p.Error == "" && s.Err != nil {
		p.Error = s.Err.Error() // an older configuration is in use
	}
	return p, state
}
