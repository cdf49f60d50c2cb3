package app

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

const (
	// answerWithin bounds a report: a kubelet waits one second for a probe
	// (timeoutSeconds), and a person should not wait at all.
	answerWithin = 500 * time.Millisecond
	// diskPatience is how long a disk that could be written may hang before it counts
	// as one that cannot.
	diskPatience = 30 * time.Second
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
	plugins  *pluginQuestions
	disk     *question[diskReport]
	moved    *question[[]restapi.MovedPlugin]
	history  *history
	asking   sync.WaitGroup // who asks plugins and disk in the background
	problems []restapi.Quarantined
	stopping atomic.Bool
}

func newReporter(c Config, log logrus.FieldLogger) *reporter {
	r := &reporter{
		config: c, started: time.Now(), guards: newGuards(c.NodeName, c.StateDir),
		history: &history{log: log, pools: map[string]spell{}},
	}
	r.disk = &question[diskReport]{
		ask:      r.askDisk,
		fresh:    func(d diskReport) time.Duration { return freshFor(d.trouble == "") },
		patience: diskPatience,
		running:  &r.asking,
	}
	r.moved = newMovedPlugins(r)
	return r
}

// Report asks each part, and waits for none of them longer than answerWithin, nor
// shorter because whoever asked has gone: the history would remember that.
func (r *reporter) Report(ctx context.Context) restapi.Report {
	rep, _ := r.report(ctx)
	return rep
}

// report is Report, and tells whether no first answer is awaited any more.
func (r *reporter) report(ctx context.Context) (rep restapi.Report, settled bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	pools := r.config.poolNames()
	r.disk.refresh()
	r.moved.refresh()
	for _, pool := range pools { // all at once, so that a hanging one takes no time from the others
		if n, err := r.conf.Network(pool); err == nil {
			r.plugins.about(pool, n)
		}
	}
	rep = restapi.Report{
		Version: r.config.Version, NodeName: r.config.NodeName, Started: r.started,
		Counters: r.counters(), Options: r.config.reported(),
	}
	settled = true
	for _, pool := range pools {
		p, is := r.pool(ctx, pool)
		if is != awaited {
			p.Since = r.history.pool(p)
		}
		settled = settled && is != awaited
		rep.Pools = append(rep.Pools, p)
		rep.Reasons = append(rep.Reasons, reasons(p)...)
	}
	moved, missing, is := r.movedPlugins(ctx)
	settled = settled && is != awaited
	rep.MovedPlugins, rep.Reasons = moved, append(rep.Reasons, missing...)
	disk, is := r.diskAnswer(ctx)
	settled = settled && is != awaited
	rep.Quarantined = slices.Concat(disk.quarantined, r.problems)
	if disk.trouble != "" {
		rep.Reasons = append(rep.Reasons, disk.trouble)
	}
	if r.stopping.Load() {
		rep.Reasons = append(rep.Reasons, "the service is stopping")
	}
	rep.Ready = len(rep.Reasons) == 0
	rep.Since = r.history.readiness(rep.Reasons, settled)
	rep.LastError = r.lastError()
	return rep, settled
}

// reasons are why a pool cannot give out addresses now. One that keeps an older
// configuration can.
func reasons(p restapi.PoolReport) []string {
	var out []string
	if p.Error != "" && p.Binary == "" {
		out = append(out, p.Error)
	}
	if p.NotReady != "" {
		out = append(out, p.NotReady)
	}
	return out
}

// diskReport is how the state folder is.
type diskReport struct {
	// trouble is why nothing can be written there; empty if it can.
	trouble     string
	quarantined []restapi.Quarantined
}

func (r *reporter) askDisk() diskReport {
	var rep diskReport
	if err := r.journal.Writable(); err != nil {
		rep.trouble = err.Error()
	}
	all, err := r.journal.Quarantined()
	if err != nil && rep.trouble == "" {
		rep.trouble = err.Error()
	}
	for _, q := range all {
		rep.quarantined = append(rep.quarantined, restapi.Quarantined{File: q.Name, Reason: q.Reason, Since: q.Since})
	}
	return rep
}

func (r *reporter) diskAnswer(ctx context.Context) (diskReport, standing) {
	rep, is := r.disk.answer(ctx)
	if is != answered {
		rep.trouble = fmt.Sprintf("the state folder %s does not answer whether it can be written", r.config.StateDir)
	}
	return rep, is
}

// lastError is the latest of what the engine and the report have seen fail.
func (r *reporter) lastError() restapi.LastError {
	ours, f := r.history.lastFailure(), r.engine.LastFailure()
	if ours.At.After(f.At) {
		return ours
	}
	return restapi.LastError{Text: f.Text, At: f.At, Owner: f.Owner, Pool: f.Pool, ContainerID: f.ContainerID}
}

func (r *reporter) counters() map[string]int64 {
	c := r.engine.Counters()
	return map[string]int64{
		"lost": int64(c.Lost), "reacquired": int64(c.Reacquired),
		"duplicates": int64(c.Duplicates), "expired": int64(c.Expired),
	}
}
