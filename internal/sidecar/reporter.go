package sidecar

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/cachedprobe"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

const (
	// reportTimeout bounds a report: a kubelet waits one second for a probe
	// (timeoutSeconds).
	reportTimeout = 500 * time.Millisecond
	// diskTimeout is how long a state directory that could be written to may hang before it
	// counts as one that cannot.
	diskTimeout = 30 * time.Second
)

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
	plugins     *poolProbes
	stateDir    *cachedprobe.Probe[stateDirStatus]
	moved       *cachedprobe.Probe[[]movedPlugin]
	transitions *transitions
	probes      sync.WaitGroup // the probes in progress
	problems    []httpapi.Quarantined
	stopping    atomic.Bool
}

func newReporter(c Config, self journal.Holder, log logrus.FieldLogger) *reporter {
	r := &reporter{
		config: c, started: time.Now(), locks: nodelock.New(c.NodeName, c.StateDir, self.String()),
		transitions: &transitions{log: log, pools: map[string]statusSince{}},
	}
	r.stateDir = &cachedprobe.Probe[stateDirStatus]{
		Run:        r.checkStateDir,
		TTL:        func(s stateDirStatus) time.Duration { return ttl(s.err == "") },
		StuckAfter: diskTimeout,
		Running:    &r.probes,
	}
	r.settings.Store(&c.Settings)
	r.moved = r.newMovedPluginsProbe()
	return r
}

// Report probes each part concurrently and waits for the results at most reportTimeout,
// whether or not the caller still does: transitions would remember an early end.
func (r *reporter) Report(ctx context.Context) httpapi.Report {
	rep, _ := r.report(ctx)
	return rep
}

// report is Report, and returns whether a first result is still pending.
func (r *reporter) report(ctx context.Context) (rep httpapi.Report, pending bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	r.refresh()
	rep = httpapi.Report{
		Version: r.config.Version, NodeName: r.config.NodeName, Started: r.started,
		Counters: r.counters(), Options: reported(*r.settings.Load()),
	}
	for _, pool := range r.config.poolNames() {
		p, state := r.pool(ctx, pool)
		if state != cachedprobe.Pending {
			p.Since = r.transitions.pool(p)
		}
		pending = pending || state == cachedprobe.Pending
		rep.Pools = append(rep.Pools, p)
		rep.Reasons = append(rep.Reasons, notReady(p)...)
	}
	state := r.addMovedPlugins(ctx, &rep)
	pending = pending || state == cachedprobe.Pending
	stateDir, state := r.stateDirStatus(ctx)
	pending = pending || state == cachedprobe.Pending
	rep.Quarantined = slices.Concat(stateDir.quarantined, r.problems)
	if stateDir.err != "" {
		rep.Reasons = append(rep.Reasons, stateDir.err)
	}
	if r.stopping.Load() {
		rep.Reasons = append(rep.Reasons, "the service is stopping")
	}
	rep.Ready = len(rep.Reasons) == 0
	rep.Since = r.transitions.readiness(rep.Reasons, pending)
	rep.LastError = r.lastError()
	return rep, pending
}

// refresh starts every probe, so that one that hangs delays none of the others.
func (r *reporter) refresh() {
	r.stateDir.Refresh()
	r.moved.Refresh()
	for _, pool := range r.config.poolNames() {
		if n, err := r.conf.Network(pool); err == nil {
			r.plugins.refresh(pool, n)
		}
	}
}

// notReady returns why a pool cannot allocate now. One that keeps an older configuration
// can.
func notReady(p httpapi.PoolReport) []string {
	var reasons []string
	if p.Error != "" && p.Binary == "" {
		reasons = append(reasons, fmt.Sprintf("pool %q: %s", p.Pool, p.Error))
	}
	if p.NotReady != "" {
		reasons = append(reasons, fmt.Sprintf("pool %q: %s", p.Pool, p.NotReady))
	}
	return reasons
}

// stateDirStatus is the status of the state directory.
type stateDirStatus struct {
	// err is why it cannot be written; empty if it can.
	err         string
	quarantined []httpapi.Quarantined
}

// checkStateDir writes to the state directory and lists the quarantined records.
func (r *reporter) checkStateDir() stateDirStatus {
	var s stateDirStatus
	if err := r.journal.Writable(); err != nil {
		s.err = err.Error()
	}
	all, err := r.journal.Quarantined()
	if err != nil && s.err == "" {
		s.err = err.Error()
	}
	for _, q := range all {
		s.quarantined = append(s.quarantined, httpapi.Quarantined{File: q.Name, Reason: q.Reason, Since: q.Since})
	}
	return s
}

// failingJournal is a journal whose failures end the validity of the last stateDirStatus.
type failingJournal struct {
	engine.Journal
	failed func()
}

func (j failingJournal) Write(r record.Record) error { return j.report(j.Journal.Write(r)) }

func (j failingJournal) Remove(containerID string) error {
	return j.report(j.Journal.Remove(containerID))
}

func (j failingJournal) Available() error { return j.report(j.Journal.Available()) }

func (j failingJournal) report(err error) error {
	if err != nil {
		j.failed()
	}
	return err
}

func (r *reporter) stateDirStatus(ctx context.Context) (stateDirStatus, cachedprobe.State) {
	s, state := r.stateDir.Result(ctx)
	if state != cachedprobe.Fresh {
		s.err = fmt.Sprintf("state directory %s does not respond to a write", r.config.StateDir)
	}
	return s, state
}

// lastError returns the last failure of the engine or of the report.
func (r *reporter) lastError() httpapi.LastError {
	own, f := r.transitions.lastFailure(), r.engine.LastFailure()
	if own.At.After(f.At) {
		return own
	}
	return httpapi.LastError{Text: f.Text, At: f.At, Owner: f.Owner, Pool: f.Pool, ContainerID: f.ContainerID}
}

func (r *reporter) counters() map[string]int64 {
	c := r.engine.Counters()
	return map[string]int64{
		"lost": int64(c.Lost), "reacquired": int64(c.Reacquired),
		"duplicates": int64(c.Duplicates), "expired": int64(c.Expired),
	}
}
