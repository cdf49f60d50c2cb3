// Package engine is the allocation engine: it keeps the attachment of each owner in step
// with the journal and the plugin (docs/design/how-it-works.md). It does not depend on HTTP,
// processes or files: it works on a Journal and a Plugin.
package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/ownermatch"
)

// Options configure an Engine. A duration of zero disables what it times, except Budget.
type Options struct {
	attachment.Options
	// Pools are the names of the configured pools.
	Pools []string
	// DefaultPool is the name of the pool of a request without one.
	DefaultPool string
	// Owners are the owners that are served. RetireOwners releases the attachments of others
	// at start.
	Owners       ownermatch.Patterns
	RetireOwners bool
	// Budget is the longest time that a request waits for its result. An operation begins no plugin
	// call later than that after it got its plugin process.
	Budget time.Duration
	// MaxProcesses is the maximum number of concurrent plugin processes of one pool, at least 1.
	// With 1, background work has one in addition. A quarter is reserved for container runtimes, and
	// another one for them and the agent.
	MaxProcesses int
	// MaxQueued is the maximum number of requests that wait or use the plugin, divided in the same way;
	// an ordinary user may have a quarter. Further ones fail with Busy.
	MaxQueued int
	// MaxAttachments is the maximum number of attachments that are not of container interfaces. Ordinary
	// users may have three quarters, and one of them a half. Further owners are rejected as Forbidden.
	MaxAttachments int
	// NamespaceExists reports whether the network namespace of a container is known to exist; nil if that is
	// never known.
	NamespaceExists func(attachment.Record) bool
	// Left reports whether the client of a request has left, by the context of the request; nil if that is never known.
	Left func(context.Context) bool
	Log  logrus.FieldLogger
	// Observer receives events; nil for none.
	Observer Observer
	// Changed is called after each change of the journal with the record before and after it, which is empty for none; nil
	// for none.
	Changed func(before, after attachment.Record)
}

// Engine manages the attachments of one node. Its methods may be called concurrently.
type Engine struct {
	opts    Options
	journal Journal
	plugin  Plugin

	callers *callers
	// pools are the configured pools and, from Start on, the pools of records. It does not change then.
	pools map[string]*pool
	// waiting are the numbers of operations that wait for an entry's lock and for a plugin process.
	waiting map[Queue]*atomic.Int64
	// ctx ends at Stop; it cancels waits and background work that has not begun.
	ctx    context.Context
	cancel context.CancelFunc

	entries
	stopping bool // guarded by mu
	wg       sync.WaitGroup
	stats    stats
}

// New returns an engine without attachments. Start must be called before any request.
func New(o Options, j Journal, p Plugin) *Engine {
	if o.Observer == nil {
		o.Observer = nopObserver{}
	}
	if o.Changed == nil {
		o.Changed = func(_, _ attachment.Record) {}
	}
	if o.Left == nil {
		o.Left = func(context.Context) bool { return false }
	}
	ctx, cancel := context.WithCancel(context.Background())
	pools := map[string]*pool{}
	for _, name := range o.Pools {
		pools[name] = newPool(o.MaxProcesses)
	}
	return &Engine{
		opts: o, journal: j, plugin: p,
		callers: newCallers(o), ctx: ctx, cancel: cancel,
		pools: pools, waiting: map[Queue]*atomic.Int64{QueueEntry: {}, QueueProcess: {}}, stats: stats{counts: map[attachment.EventKind]uint64{}},
		entries: entries{
			byID: map[string]*entry{}, index: index{}, returned: map[attachment.Key]bool{},
			owned: owned{limit: o.MaxAttachments, users: map[int]int{}},
		},
	}
}

// Start loads the records of the journal. Requests are served from then on.
func (e *Engine) Start(records []attachment.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range records {
		e.load(r)
	}
	e.logBoot(records)
	e.wg.Go(e.lookUpRounds)
}

// Reconcile reconciles each loaded record in the background, and later those of which requests leave work: it
// completes interrupted acquisitions and releases, verifies held attachments, reacquires lost ones and releases those
// that RetireOwners names. It is called once, after Start, and returns immediately.
func (e *Engine) Reconcile() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		return
	}
	for name, p := range e.pools {
		if e.opts.WarmLeases > 0 && slices.Contains(e.opts.Pools, name) {
			e.wg.Go(func() { e.keepWarm(name, p) })
		}
		// At most half of the plugin processes, so that requests always get one.
		for range max(1, e.opts.MaxProcesses/2) {
			e.wg.Go(func() {
				for a := p.workqueue.get(); a != nil; a = p.workqueue.get() {
					e.reconcile(a)
				}
			})
		}
	}
}

// Stop rejects new requests, drops background work that has not begun, and waits until work
// in progress is recorded, or until ctx ends. It releases nothing.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	e.stopping = true
	for _, a := range e.sorted {
		if a.timer != nil {
			a.timer.Stop()
		}
	}
	e.mu.Unlock()
	e.cancel()
	for _, p := range e.pools {
		p.workqueue.shutDown()
	}
	done := make(chan struct{})
	go func() { e.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkPool rejects a pool that is not configured. With held, the pool of an existing
// attachment is accepted too, so that leftovers of an earlier configuration can be released.
func (e *Engine) checkPool(pool string, held bool) error {
	if slices.Contains(e.opts.Pools, pool) {
		return nil
	}
	known := slices.Clone(e.opts.Pools)
	if held {
		e.mu.Lock()
		defer e.mu.Unlock()
		if i, _ := e.position(attachment.Key{Pool: pool}); i < len(e.sorted) && e.sorted[i].Pool == pool {
			return nil
		}
	}
	slices.Sort(known)
	return attachment.NewError(attachment.UnknownPool, "pool %q is not known; expected one of: %s", pool, strings.Join(known, ", "))
}
