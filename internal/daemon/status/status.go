// Package status reports the status of the daemon. It is ready if every pool has a configuration whose plugin
// can be called, and the journal can be written.
package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/go-openapi/strfmt"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
)

// reportTimeout bounds a report, and the wait for the first results: a kubelet waits one second for a probe
// (timeoutSeconds).
const reportTimeout = 500 * time.Millisecond

// Options are what a Reporter reports.
type Options struct {
	Version, NodeName, StateDir string
	// Settings returns the options of serve; nil if there are none.
	Settings func() []options.Setting
	// Conf has the networks of the pools, and Plugins runs their plugins, each for at most PluginTimeout.
	Conf          *cniconf.Watcher
	Plugins       *plugin.Runner
	PluginTimeout time.Duration
	// Lock acquires the node lock of a network.
	Lock    func(network string) error
	Journal Journal
	Engine  Engine
	Spool   func() *models.SpoolStatus
	Ended   func() *models.EndedContainers
	// Log gets a line when the daemon becomes ready or not ready.
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
	Count(attachment.EventKind) uint64
	LastFailure() engine.Failure
	Plugins() []engine.PluginUse
	Warm() map[string]engine.WarmPool
	Summaries() map[string]engine.Summary
}

// Reporter makes the reports. Its methods may be called concurrently.
type Reporter struct {
	Options
	started  time.Time
	stateDir *probe[list[models.QuarantinedRecord]]
	moved    *probe[list[models.MovedPlugin]]
	// writeErr is why the last write to the journal failed; nil once a check that began later has succeeded.
	writeErr atomic.Pointer[error]
	// running are the checks in progress; none begins after Stopping.
	runMu    sync.Mutex
	stopping atomic.Bool
	running  sync.WaitGroup
	changed  chan struct{} // a report may differ from the last one

	mu      sync.Mutex
	pools   map[string]poolProbe
	changes map[string]change // by pool; of readiness under ""
}

// New returns a reporter, which checks nothing before Run.
func New(o Options) *Reporter {
	r := &Reporter{
		Options: o, started: time.Now(), changed: make(chan struct{}, 1),
		pools: map[string]poolProbe{}, changes: map[string]change{},
	}
	r.stateDir = newProbe(r, stuckAfter, list[models.QuarantinedRecord]{
		err: fmt.Sprintf("state directory %s does not respond to a write", o.StateDir),
	}, r.checkStateDir)
	r.moved = newProbe(r, stuckAfter, list[models.MovedPlugin]{
		err: "plugin directories do not respond: the plugins of held attachments cannot be looked up",
	}, r.findMovedPlugins)
	return r
}

// Every part is checked after readyTicks ticks, and one that is a reason why the daemon is not ready after each, so that a
// recovery is noticed soon.
const (
	tick       = time.Second
	readyTicks = 5
)

// Start begins all checks and waits for their results, at most reportTimeout.
func (r *Reporter) Start() {
	r.Conf.OnChange(r.change)
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	for _, ended := range r.start(func(string) bool { return true }) {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
}

// Run repeats the checks until ctx ends or the service stops, and logs the readiness, even if no client requests it.
func (r *Reporter) Run(ctx context.Context) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for n := 0; !r.stopping.Load(); {
		rep := r.report(r.poolProbes())
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-ticks.C:
			n++
			r.start(func(pool string) bool { return n%readyTicks == 0 || slices.Contains(rep.of, pool) })
		}
	}
}

// start begins the checks of the pools that are due, of "" those that every pool needs, and returns their ends.
func (r *Reporter) start(due func(pool string) bool) (ends []<-chan struct{}) {
	if due("") {
		ends = append(ends, r.stateDir.start())
	}
	moved := due("")
	for _, c := range r.poolProbes() {
		moved = moved || due(c.pool) // it is why the pool is not ready, or the plugin is
		if c.confErr == nil && due(c.pool) {
			ends = append(ends, c.start())
		}
	}
	if moved {
		ends = append(ends, r.moved.start())
	}
	return ends
}

// change makes Run look at the status.
func (r *Reporter) change() {
	select {
	case r.changed <- struct{}{}:
	default: // it will anyway
	}
}

// WriteFailed makes the daemon not ready, because a write to the journal has failed, until a check succeeds that begins
// later.
func (r *Reporter) WriteFailed(err error) {
	r.writeErr.Store(&err)
	r.change()
}

// Stopping makes the daemon not ready for good. No check begins from then on.
func (r *Reporter) Stopping() {
	r.runMu.Lock()
	defer r.runMu.Unlock()
	r.stopping.Store(true)
}

// Wait is Stopping, and waits for the end of the checks in progress, so that no plugin process outlives this one, or for
// the end of ctx, whose error it returns.
func (r *Reporter) Wait(ctx context.Context) error {
	r.Stopping()
	ended := make(chan struct{})
	go func() { r.running.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin runs a check in the background, unless it is too late.
func (r *Reporter) begin(check func()) bool {
	r.runMu.Lock()
	defer r.runMu.Unlock()
	if r.stopping.Load() {
		return false
	}
	r.running.Go(check)
	return true
}

// Report returns the status, with the last result of each check. It waits until the addresses are counted, at most
// reportTimeout. With a network it is the status for its pods: reasons and pools are those of its pool, and of the
// parts that every pool needs. A network that no pool serves is a reason, with those of all pools, one of which may be
// its pool.
func (r *Reporter) Report(ctx context.Context, network string) *models.DelegatedIPAMStatus {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	pools := r.poolProbes()
	rep := r.report(pools)
	serving := ""
	for i, c := range pools {
		rep.Pools[i].Addresses = r.addresses(ctx, c, rep.Pools[i])
		if n := c.network; c.confErr == nil && n.ServesContainers && n.Name == network {
			serving = c.pool
		}
	}
	if network == "" {
		return rep.DelegatedIPAMStatus
	}
	all := rep.Reasons
	rep.Reasons, rep.Since = []string{}, nil
	for i, pool := range rep.of {
		if pool == "" || serving == "" || pool == serving {
			rep.Reasons = append(rep.Reasons, all[i])
		}
	}
	if serving == "" {
		rep.Reasons = append(rep.Reasons, fmt.Sprintf("network %q is not served for pods", network))
	} else {
		rep.Pools = slices.DeleteFunc(rep.Pools, func(p *models.PoolStatus) bool { return p.Pool != serving })
	}
	rep.Ready = len(rep.Reasons) == 0
	return rep.DelegatedIPAMStatus
}

// report is a status. of is the pool of each of its reasons, empty for one that every pool has.
type report struct {
	*models.DelegatedIPAMStatus
	of []string
}

func (r *report) addReason(pool, text string) {
	r.of, r.Reasons = append(r.of, pool), append(r.Reasons, text)
}

// report returns the status without addresses.
func (r *Reporter) report(pools []poolProbe) *report {
	count := func(k attachment.EventKind) int64 { return int64(r.Engine.Count(k)) }
	rep := &report{DelegatedIPAMStatus: &models.DelegatedIPAMStatus{
		Version: r.Version, NodeName: r.NodeName, Started: strfmt.DateTime(r.started),
		Counters: map[string]int64{
			"lost": count(attachment.EventLost), "reacquired": count(attachment.EventReacquired),
			"duplicates": count(attachment.EventDuplicate), "expired": count(attachment.EventExpired),
		},
		Options: []*models.OptionValue{}, Pools: []*models.PoolStatus{}, Reasons: []string{},
		Spool: r.Spool(), EndedContainers: r.Ended(),
	}}
	if r.Settings != nil {
		for _, s := range r.Settings() {
			rep.Options = append(rep.Options, &models.OptionValue{Name: s.Name, Value: s.Value, Source: string(s.Source)})
		}
	}
	r.addPools(rep, pools)
	r.addMovedPlugins(rep)
	stateDir := r.stateDir.result()
	rep.Quarantined = append([]*models.QuarantinedRecord{}, stateDir.all...) // never null
	if failed := r.writeErr.Load(); failed != nil && stateDir.err == "" {
		stateDir.err = (*failed).Error()
	}
	if stateDir.err != "" {
		rep.addReason("", stateDir.err)
	}
	rep.Ready = len(rep.Reasons) == 0
	if r.stopping.Load() {
		rep.Ready = false
		rep.addReason("", "the service is stopping")
		rep.LastError = r.lastError(nil, time.Time{})
		return rep // the log has it
	}
	since := r.readySince(rep.Reasons)
	rep.Since, rep.LastError = httpapi.OptionalTime(since), r.lastError(rep.Reasons, since)
	return rep
}

// change is a status, and when it was observed instead of another one; zero for the first one.
type change struct {
	status string
	at     time.Time
}

// observe records the status of a pool, or the readiness under "". It returns when that last changed, and whether it has
// now; the time is at least from.
func (r *Reporter) observe(pool, status string, from time.Time) (since time.Time, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, seen := r.changes[pool]
	if changed = !seen || last.status != status; changed {
		last.status = status
		if seen {
			last.at = time.Now()
		}
		r.changes[pool] = last
	}
	if last.at.After(from) {
		from = last.at
	}
	return from, changed
}

// readySince returns since when the daemon is ready, or not ready for these reasons, and logs a change.
func (r *Reporter) readySince(reasons []string) time.Time {
	status := "Ready"
	if len(reasons) > 0 {
		status = "Not ready"
	}
	since, changed := r.observe("", status, r.started)
	switch {
	case changed && len(reasons) == 0:
		r.Log.Info(status)
		r.Notify("STATUS=" + status)
	case changed:
		r.Log.WithField("reasons", reasons).Warn(status)
		r.Notify("STATUS=" + status + ": " + strings.ReplaceAll(strings.Join(reasons, "; "), "\n", " "))
	}
	return since
}

// Notify sends states to systemd if it waits for them (sd_notify(3), Type=notify).
func (r *Reporter) Notify(states ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil {
		r.Log.WithError(err).Warn("systemd cannot be notified")
	}
}

// lastError returns the last failure of the engine or, if that is later, why the daemon is not ready since a time; nil
// if there is neither.
func (r *Reporter) lastError(reasons []string, since time.Time) *models.LastError {
	f := r.Engine.LastFailure()
	if len(reasons) > 0 && since.After(f.At) {
		return &models.LastError{Text: "not ready: " + strings.Join(reasons, "; "), Time: strfmt.DateTime(since)}
	}
	if f.Text == "" {
		return nil
	}
	return &models.LastError{Text: f.Text, Time: strfmt.DateTime(f.At), Owner: f.Owner, Pool: f.Pool, ContainerID: f.ContainerID}
}
