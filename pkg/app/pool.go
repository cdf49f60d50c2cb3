package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// A plugin that can serve is asked again after goodFor, one that cannot after
// badFor, so that its recovery is seen soon. The same holds for the journal.
const (
	goodFor = 5 * time.Second
	badFor  = time.Second
)

func freshFor(good bool) time.Duration {
	if good {
		return goodFor
	}
	return badFor
}

// pluginQuestions are what the plugins are asked for the pools' report, by pool.
type pluginQuestions struct {
	runner *delegate.Runner
	guards *guards
	// running counts who asks.
	running *sync.WaitGroup
	// patience is how long a plugin that has answered may take for the next answer.
	patience time.Duration

	mu     sync.Mutex
	byPool map[string]pluginQuestion
}

// pluginQuestion is asked of one configuration of a pool.
type pluginQuestion struct {
	network cniconf.Network
	*question[pluginAnswer]
}

// pluginAnswer is what a pool's plugin is.
type pluginAnswer struct {
	restapi.PoolReport
	// context is that of a new ADD, as far as it is known.
	context call.Invocation
}

func newPluginQuestions(r *delegate.Runner, g *guards, running *sync.WaitGroup, patience time.Duration) *pluginQuestions {
	return &pluginQuestions{runner: r, guards: g, running: running, patience: patience, byPool: map[string]pluginQuestion{}}
}

// about returns the question about a pool's plugin, with its answer on the way.
// Another configuration is another question: what was answered before says nothing of it.
func (p *pluginQuestions) about(pool string, n cniconf.Network) *question[pluginAnswer] {
	p.mu.Lock()
	defer p.mu.Unlock()
	q, ok := p.byPool[pool]
	if !ok || !q.network.Equal(n) {
		q = pluginQuestion{n, &question[pluginAnswer]{
			ask:      func() pluginAnswer { return p.ask(pool, n) },
			fresh:    func(r pluginAnswer) time.Duration { return freshFor(r.Error == "" && r.NotReady == "") },
			patience: p.patience,
			running:  p.running,
		}}
		p.byPool[pool] = q
	}
	q.refresh()
	return q.question
}

// ask finds out whether a pool's plugin can be used, and what it is. A file, a
// VERSION that is not known yet, and STATUS: each may take long.
func (p *pluginQuestions) ask(pool string, n cniconf.Network) pluginAnswer {
	r := pluginAnswer{PoolReport: restapi.PoolReport{Plugin: n.IPAMType}}
	if err := p.guards.take(n.Name, 0); err != nil {
		r.Error = fmt.Sprintf("pool %q: %v", pool, err)
		return r
	}
	ctx := context.Background()
	c, err := p.runner.NewInvocation(ctx, network(n), "", "")
	r.Profile = c.Profile // known although it cannot be used
	if err != nil {
		r.Error = fmt.Sprintf("pool %q: %v", pool, err)
		return r
	}
	r.context = c
	r.Binary, r.CNIVersion, r.PluginVersions = c.Binary, c.CNIVersion, p.runner.Versions(c.Binary)
	if err := p.runner.Status(ctx, c); err != nil {
		r.NotReady = fmt.Sprintf("pool %q: %v", pool, err)
	}
	return r
}

// pool is how a pool is: what is known of its configuration now, and what its
// plugin answers in time.
func (r *reporter) pool(ctx context.Context, pool string) (restapi.PoolReport, standing) {
	s := r.conf.Status(pool)
	n, err := r.conf.Network(pool)
	if err != nil {
		return restapi.PoolReport{Pool: pool, Error: err.Error(), Since: s.Since}, answered
	}
	a, is := r.plugins.about(pool, n).answer(ctx)
	p := a.PoolReport
	if p.Binary != "" { // as it is now: an ADD may have changed it since
		p.Verification = restapi.Verification(r.runner.Verification(a.context))
	}
	if is != answered {
		p = restapi.PoolReport{Plugin: n.IPAMType, NotReady: fmt.Sprintf("pool %q: plugin %s does not answer whether it can serve (VERSION or STATUS)", pool, n.IPAMType)}
	}
	p.Pool, p.Network, p.File, p.Since = pool, s.Network, s.File, s.Since
	if p.Error == "" && s.Err != nil {
		p.Error = s.Err.Error() // what is used is an older configuration
	}
	return p, is
}
