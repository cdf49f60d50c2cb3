package sidecar

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-openapi/strfmt"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/drain"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/ended"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/statedir"
)

// reportTimeout bounds a report: a kubelet waits one second for a probe (timeoutSeconds).
const reportTimeout = 500 * time.Millisecond

// reporter reports the status of the sidecar. It is ready if every pool has a
// configuration whose plugin can be called, and the journal can be written.
type reporter struct {
	config      Config
	settings    atomic.Pointer[[]options.Setting]
	started     time.Time
	conf        *cniconf.Watcher
	runner      *plugin.Runner
	locks       *nodelock.Locks
	journal     *journal.Journal
	engine      *engine.Engine
	drainer     *drain.Drainer
	ended       *ended.Sweeper
	stateDir    *cachedProbe[stateDirStatus]
	moved       *cachedProbe[[]movedPlugin]
	transitions *transitions
	probes      sync.WaitGroup // the probes in progress
	stopping    atomic.Bool

	mu     sync.Mutex
	byPool map[string]poolProbe
}

func newReporter(c Config, self statedir.Holder, log logrus.FieldLogger) *reporter {
	r := &reporter{
		config: c, started: time.Now(), locks: nodelock.New(c.NodeName, c.StateDir, self.String()),
		transitions: &transitions{log: log, pools: map[string]statusSince{}}, byPool: map[string]poolProbe{},
	}
	r.settings.Store(&c.Settings)
	r.stateDir = &cachedProbe[stateDirStatus]{
		run:        r.checkStateDir,
		good:       func(s stateDirStatus) bool { return s.err == "" },
		stuckAfter: stuckAfter,
		running:    &r.probes,
	}
	r.moved = &cachedProbe[[]movedPlugin]{
		run:        r.findMovedPlugins,
		good:       func(all []movedPlugin) bool { return !slices.ContainsFunc(all, movedPlugin.missing) },
		stuckAfter: stuckAfter,
		running:    &r.probes,
	}
	return r
}

// Report probes each part concurrently and waits for the results at most reportTimeout,
// whether or not the caller still does: transitions would remember an early end.
func (r *reporter) Report(ctx context.Context) *models.DelegatedIPAMStatus {
	rep, _, _ := r.report(ctx)
	return rep
}

// ReportNetwork is Report for the pods of one network: reasons and pools are those of its pool, and of the
// parts that every pool needs. A network that no pool serves is a reason, with those of all pools, one of
// which may be its pool.
func (r *reporter) ReportNetwork(ctx context.Context, network string) *models.DelegatedIPAMStatus {
	rep, reasons, _ := r.report(ctx)
	serving := r.servingPool(network)
	rep.Reasons, rep.Since = []string{}, nil
	for _, why := range reasons {
		if why.pool == "" || serving == "" || why.pool == serving {
			rep.Reasons = append(rep.Reasons, why.text)
		}
	}
	if serving == "" {
		rep.Reasons = append(rep.Reasons, fmt.Sprintf("network %q is not served for pods", network))
	} else {
		rep.Pools = slices.DeleteFunc(rep.Pools, func(p *models.PoolStatus) bool { return p.Pool != serving })
	}
	rep.Ready = len(rep.Reasons) == 0
	return rep
}

// servingPool returns the pool that serves the pods of a network; empty if there is none.
func (r *reporter) servingPool(network string) string {
	for _, pool := range r.config.poolNames() {
		if n, err := r.conf.Network(pool); err == nil && n.ServesContainers && n.Name == network {
			return pool
		}
	}
	return ""
}

// reason is why the sidecar is not ready.
type reason struct {
	// pool is the pool that is not; empty if none is.
	pool, text string
}

// report is Report, and returns the reasons with their pools, and whether a first result is still pending.
func (r *reporter) report(ctx context.Context) (rep *models.DelegatedIPAMStatus, reasons []reason, pending bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	r.refresh()
	rep = &models.DelegatedIPAMStatus{
		Version: r.config.Version, NodeName: r.config.NodeName, Started: strfmt.DateTime(r.started),
		Counters: r.counters(), Options: []*models.OptionValue{}, Pools: []*models.PoolStatus{}, Reasons: []string{},
	}
	for _, s := range *r.settings.Load() {
		rep.Options = append(rep.Options, &models.OptionValue{Name: s.Name, Value: s.Value, Source: string(s.Source)})
	}
	for _, pool := range r.config.poolNames() {
		p, state := r.pool(ctx, pool)
		pending = pending || state == probePending
		rep.Pools = append(rep.Pools, p)
		reasons = append(reasons, notReady(p)...)
	}
	moved, state := r.addMovedPlugins(ctx, rep, reasons)
	reasons = append(reasons, moved...)
	pending = pending || state == probePending
	stateDir, state := r.stateDirStatus(ctx)
	pending = pending || state == probePending
	rep.Quarantined = append([]*models.QuarantinedRecord{}, stateDir.quarantined...) // never null
	if stateDir.err != "" {
		reasons = append(reasons, reason{text: stateDir.err})
	}
	if r.stopping.Load() {
		reasons = append(reasons, reason{text: "the service is stopping"})
	}
	for _, why := range reasons {
		rep.Reasons = append(rep.Reasons, why.text)
	}
	rep.Ready = len(rep.Reasons) == 0
	rep.Since = httpapi.OptionalTime(r.transitions.readiness(rep.Reasons, pending))
	rep.LastError = r.lastError()
	rep.Spool = spoolStatus(r.drainer.Status())
	rep.EndedContainers = endedStatus(r.ended.Status())
	return rep, reasons, pending
}

// spoolStatus returns the status of the spool in the form of the API.
func spoolStatus(s drain.Status) *models.SpoolStatus {
	out := &models.SpoolStatus{
		Directory: s.Directory, Pending: int64(s.Pending), Oldest: httpapi.OptionalTime(s.Oldest), Quarantined: int64(s.Quarantined),
	}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	return out
}

// endedStatus returns the status of containers that ended without a DEL in the form of the API.
func endedStatus(s ended.Status) *models.EndedContainers {
	return &models.EndedContainers{
		Pending: int64(s.Pending), Oldest: httpapi.OptionalTime(s.Oldest), Delay: int64(math.Ceil(s.Delay.Seconds())), HiddenDirectories: s.Hidden,
		Runtime: s.Runtime, Reported: httpapi.OptionalTime(s.Reported), Sandboxes: int64(s.Sandboxes),
	}
}

// refresh starts every probe, so that one that hangs delays none of the others.
func (r *reporter) refresh() {
	r.stateDir.refresh()
	r.moved.refresh()
	for _, pool := range r.config.poolNames() {
		if n, err := r.conf.Network(pool); err == nil {
			r.poolProbe(pool, n)
		}
	}
}

// notReady returns why a pool cannot allocate now. One that keeps an older configuration
// can.
func notReady(p *models.PoolStatus) []reason {
	var reasons []reason
	if p.Error != "" && p.CniVersion == "" {
		reasons = append(reasons, reason{p.Pool, fmt.Sprintf("pool %q: %s", p.Pool, p.Error)})
	}
	if p.NotReady != "" {
		reasons = append(reasons, reason{p.Pool, fmt.Sprintf("pool %q: %s", p.Pool, p.NotReady)})
	}
	return reasons
}

// lastError returns the last failure of the engine or of the report; nil if there was none.
func (r *reporter) lastError() *models.LastError {
	f := r.engine.LastFailure()
	if own := r.transitions.lastFailure(); own.At.After(f.At) {
		f = own
	}
	if f.Text == "" {
		return nil
	}
	return &models.LastError{Text: f.Text, Time: strfmt.DateTime(f.At), Owner: f.Owner, Pool: f.Pool, ContainerID: f.ContainerID}
}

func (r *reporter) counters() map[string]int64 {
	c := r.engine.Counters()
	return map[string]int64{
		"lost": int64(c.Lost), "reacquired": int64(c.Reacquired),
		"duplicates": int64(c.Duplicates), "expired": int64(c.Expired),
	}
}
