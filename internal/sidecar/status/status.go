// Package status reports the status of the sidecar. It is ready if every pool has a configuration whose plugin
// can be called, and the journal can be written.
package status

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
)

// reportTimeout bounds a report: a kubelet waits one second for a probe (timeoutSeconds).
const reportTimeout = 500 * time.Millisecond

// Options are what a Reporter reports.
type Options struct {
	Version, NodeName, StateDir string
	// Settings returns the options of serve; nil for none.
	Settings func() []options.Setting
	// Conf has the networks of the pools, and Plugins runs their plugins, each for at most PluginTimeout.
	Conf          *cniconf.Watcher
	Plugins       *plugin.Runner
	PluginTimeout time.Duration
	// Lock acquires the node lock of a network.
	Lock    func(network string) error
	Journal Journal
	Engine  Engine
	Spool   func() drain.Status
	Ended   func() ended.Status
	// Log gets a line when the sidecar becomes ready or not ready.
	Log logrus.FieldLogger
}

// Journal is the journal of the state directory.
type Journal interface {
	// Writable returns why a record could not be written now. It may take any time.
	Writable() error
	Quarantined() ([]journal.Quarantined, error)
}

// Engine has the attachments.
type Engine interface {
	Counters() engine.Counters
	LastFailure() engine.Failure
	Plugins() []engine.PluginUse
}

// Reporter makes the reports. Its methods may be called concurrently.
type Reporter struct {
	Options
	started  time.Time
	stopping atomic.Bool
	stateDir *probe[stateDirStatus]
	moved    *probe[movedPlugins]
	running  sync.WaitGroup // the checks in progress
	changed  chan struct{}  // a report may differ from the last one

	mu      sync.Mutex
	pools   map[string]poolProbe
	changes map[string]change // by pool; of readiness under ""
}

// New returns a reporter, which checks nothing before Run.
func New(o Options) *Reporter {
	if o.Settings == nil {
		o.Settings = func() []options.Setting { return nil }
	}
	r := &Reporter{
		Options: o, started: time.Now(), changed: make(chan struct{}, 1),
		pools: map[string]poolProbe{}, changes: map[string]change{},
	}
	r.stateDir = &probe[stateDirStatus]{
		run: r.checkStateDir, stuckAfter: stuckAfter, first: make(chan struct{}),
		unknown: stateDirStatus{err: fmt.Sprintf("state directory %s does not respond to a write", o.StateDir)},
	}
	r.moved = &probe[movedPlugins]{
		run: r.findMovedPlugins, stuckAfter: stuckAfter, first: make(chan struct{}),
		unknown: movedPlugins{err: "plugin directories do not respond: the plugins of held attachments cannot be looked up"},
	}
	return r
}

// Every part is checked after goodTicks ticks, and each second one that is not good, so that a recovery is noticed soon.
const (
	tick      = time.Second
	goodTicks = 5
)

// Run repeats the checks until ctx ends or the service stops, and logs the readiness, even if no client requests it.
func (r *Reporter) Run(ctx context.Context) {
	r.Conf.OnChange(r.change)
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	r.start(true)
	for n := 1; !r.stopping.Load(); {
		r.report(ctx, false)
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-ticks.C:
			r.start(n%goodTicks == 0)
			n++
		}
	}
}

// start begins all checks, or those whose last result is not good.
func (r *Reporter) start(all bool) {
	r.stateDir.start(all, &r.running, r.change)
	r.moved.start(all, &r.running, r.change)
	for _, c := range r.poolProbes() {
		if c.confErr == nil {
			c.start(all, &r.running, r.change)
		}
	}
}

// change makes Run look at the status.
func (r *Reporter) change() {
	select {
	case r.changed <- struct{}{}:
	default: // it will anyway
	}
}

// WriteFailed makes the sidecar not ready, because a write to the journal has failed, until a check succeeds that begins
// later.
func (r *Reporter) WriteFailed(err error) {
	r.stateDir.fail(func(s *stateDirStatus) { s.err = err.Error() })
	r.change()
}

// Stopping makes the sidecar not ready for good.
func (r *Reporter) Stopping() { r.stopping.Store(true) }

// Wait waits for the end of the checks in progress, so that no plugin process outlives this one, or for the end of ctx,
// whose error it returns. Run must have ended.
func (r *Reporter) Wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { r.running.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Report returns the status, with the last result of each check. It waits for the first results, and until the addresses
// are counted, at most reportTimeout.
func (r *Reporter) Report(ctx context.Context) *models.DelegatedIPAMStatus {
	rep, _ := r.report(ctx, true)
	return rep
}

// ReportNetwork is Report for the pods of one network: reasons and pools are those of its pool, and of the
// parts that every pool needs. A network that no pool serves is a reason, with those of all pools, one of
// which may be its pool.
func (r *Reporter) ReportNetwork(ctx context.Context, network string) *models.DelegatedIPAMStatus {
	rep, reasons := r.report(ctx, true)
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
func (r *Reporter) servingPool(network string) string {
	for _, pool := range r.Conf.Pools() {
		if n, err := r.Conf.Network(pool); err == nil && n.ServesContainers && n.Name == network {
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

// report is Report, without addresses if that is enough, and returns the reasons with their pools.
func (r *Reporter) report(ctx context.Context, addresses bool) (rep *models.DelegatedIPAMStatus, reasons []reason) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	rep = &models.DelegatedIPAMStatus{
		Version: r.Version, NodeName: r.NodeName, Started: strfmt.DateTime(r.started),
		Counters: r.counters(), Options: []*models.OptionValue{}, Pools: []*models.PoolStatus{}, Reasons: []string{},
		Spool: spoolStatus(r.Spool()), EndedContainers: endedStatus(r.Ended()),
	}
	for _, s := range r.Settings() {
		rep.Options = append(rep.Options, &models.OptionValue{Name: s.Name, Value: s.Value, Source: string(s.Source)})
	}
	pending := r.addPools(ctx, rep, &reasons)
	pending = r.addMovedPlugins(ctx, rep, &reasons) || pending
	pending = r.addStateDir(ctx, rep, &reasons) || pending
	if r.stopping.Load() {
		reasons = append(reasons, reason{text: "the service is stopping"})
		pending = true // the log has it
	}
	for _, why := range reasons {
		rep.Reasons = append(rep.Reasons, why.text)
	}
	rep.Ready = len(rep.Reasons) == 0
	since := r.readySince(rep.Reasons, pending)
	rep.Since, rep.LastError = httpapi.OptionalTime(since), r.lastError(rep.Reasons, since)
	if addresses {
		r.addAddresses(ctx, rep)
	}
	return rep, reasons
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

func (r *Reporter) counters() map[string]int64 {
	c := r.Engine.Counters()
	return map[string]int64{
		"lost": int64(c.Lost), "reacquired": int64(c.Reacquired),
		"duplicates": int64(c.Duplicates), "expired": int64(c.Expired),
	}
}
