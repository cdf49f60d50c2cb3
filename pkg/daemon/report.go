package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// reporter tells how the process is: ready is, when every pool has a
// configuration whose plugin can be asked, and the journal can be written.
type reporter struct {
	config   Config
	started  time.Time
	conf     *cniconf.Watcher
	runner   *delegate.Runner
	guards   *guards
	journal  *journal.Journal
	engine   *attachment.Engine
	problems []restapi.Quarantined
	stopping atomic.Bool
}

// Report asks each part.
func (r *reporter) Report(ctx context.Context) restapi.Report {
	rep := restapi.Report{
		Version: r.config.Version, NodeName: r.config.NodeName, Started: r.started,
		Quarantined: r.problems, Counters: r.counters(), Options: r.config.Options,
	}
	for _, pool := range r.config.poolNames() {
		p := r.pool(ctx, pool)
		if p.Error != "" && p.Binary == "" {
			rep.Reasons = append(rep.Reasons, p.Error)
		}
		if p.NotReady != "" {
			rep.Reasons = append(rep.Reasons, p.NotReady)
		}
		rep.Pools = append(rep.Pools, p)
	}
	if err := r.journal.Writable(); err != nil {
		rep.Reasons = append(rep.Reasons, fmt.Sprintf("the state folder cannot be written: %v", err))
	}
	if r.stopping.Load() {
		rep.Reasons = append(rep.Reasons, "the service is stopping")
	}
	rep.Ready = len(rep.Reasons) == 0
	return rep
}

// pool describes one pool and the plugin behind it.
func (r *reporter) pool(ctx context.Context, pool string) restapi.PoolReport {
	s := r.conf.Status(pool)
	p := restapi.PoolReport{Pool: pool, Network: s.Network, File: s.File, Since: s.Since}
	if s.Err != nil {
		p.Error = s.Err.Error()
	}
	n, err := r.conf.Network(pool)
	if err != nil {
		p.Error = err.Error()
		return p
	}
	if err := r.guards.take(n.Name); err != nil {
		p.Error = fmt.Sprintf("pool %q: %v", pool, err)
		return p
	}
	c, err := r.runner.Context(ctx, network(n), "", "")
	p.Plugin, p.Profile = c.Plugin, c.Profile // known although it cannot be used
	if err != nil {
		p.Error = fmt.Sprintf("pool %q: %v", pool, err)
		return p
	}
	p.Binary, p.CNIVersion = c.Binary, c.CNIVersion
	if err := r.runner.Status(ctx, c); err != nil {
		p.NotReady = fmt.Sprintf("pool %q: %v", pool, err)
	}
	return p
}

func (r *reporter) counters() map[string]int64 {
	c := r.engine.Counters()
	return map[string]int64{
		"lost": int64(c.Lost), "healed": int64(c.Healed),
		"duplicates": int64(c.Duplicates), "expired": int64(c.Expired),
	}
}
