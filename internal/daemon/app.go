package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/drain"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/ended"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/history"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/metrics"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/nodelock"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/status"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/ownermatch"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/spool"
)

const (
	// budget is the longest time that a request waits: Cilium's clients end it after 90 s.
	budget = 80 * time.Second

	// repeatedInterval is the time between two lines about events that callers repeat.
	repeatedInterval = time.Minute
)

// Run serves until ctx ends, then stops gracefully: it rejects new work and waits for
// running plugin calls. The error is why it could not start or stop.
func Run(ctx context.Context, c Config, log logrus.FieldLogger) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	self := statedir.Holder{Pod: c.PodName, Started: time.Now()}
	dir, err := statedir.Lock(ctx, c.StateDir, self, func(holder string) {
		log.WithField("stateDir", c.StateDir).Warnf("Not ready: waiting for the state directory, which another process holds: %s", holder)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()

	a, err := assemble(c, dir, self, log)
	if err != nil {
		return err
	}
	defer a.journal.Close()
	defer a.history.Close()
	defer a.locks.Release()
	defer func() { err = errors.Join(err, a.drainer.Close()) }()
	return a.serve(ctx)
}

// app is the assembled daemon.
type app struct {
	config  Config
	log     logrus.FieldLogger
	metrics *metrics.Metrics
	conf    *cniconf.Watcher
	runner  *plugin.Runner
	locks   *nodelock.Locks
	journal *journal.Journal
	history *history.Log
	loaded  journal.Loaded
	engine  *engine.Engine
	ended   *ended.Sweeper
	drainer *drain.Drainer
	status  *status.Reporter
	api     *httpapi.API
	// overLimit logs the connections that are closed because there are too many, and refusals the
	// refused requests.
	overLimit, refusals *logging.Repeated
}

// assemble creates and connects every part. Nothing runs yet.
func assemble(c Config, dir *statedir.Dir, self statedir.Holder, log logrus.FieldLogger) (*app, error) {
	boot, err := statedir.Host{}.BootID()
	if err != nil {
		return nil, err
	}
	machine := statedir.Host{}.MachineID()
	if machine == "" {
		log.Warn("No machine ID: records of another machine cannot be detected; mount the host's /etc/machine-id")
	}
	a := &app{
		config: c, log: log, locks: nodelock.New(c.NodeName, c.StateDir, self.String()),
		journal: journal.Open(dir, journal.Options{
			Metadata:    journal.Metadata{MachineID: machine, BootID: boot, Node: c.NodeName},
			DefaultPool: c.IPAMDefaultIPPool,
		}),
		overLimit: logging.NewRepeated(log, repeatedInterval), refusals: logging.NewRepeated(log, repeatedInterval),
	}
	if err := a.connect(dir, boot); err != nil {
		a.locks.Release()
		a.journal.Close()
		return nil, err
	}
	return a, nil
}

// connect loads the journal, creates every part, and acquires the node locks.
func (a *app) connect(state *statedir.Dir, boot string) error {
	// The parts need no record.
	var loading sync.WaitGroup
	var loadErr error
	loading.Go(func() { a.loaded, loadErr = a.journal.Load() })
	err := a.createParts(state, boot)
	loading.Wait()
	if loadErr != nil {
		return loadErr
	}
	a.reportProblems()
	if err != nil {
		return err
	}
	if err := a.lockNetworks(); err != nil {
		return err
	}
	a.releaseLeftovers(boot)
	a.connectSpool()
	a.registerMetrics()
	return nil
}

// createParts creates the parts that need no record.
func (a *app) createParts(state *statedir.Dir, boot string) (err error) {
	c := a.config
	a.metrics = metrics.New(metrics.Options{Version: c.Version, Pools: c.poolNames()})
	a.history = history.New(state, a.log)
	if err := a.createPlugins(state); err != nil {
		return err
	}
	owners, err := ownermatch.Parse(c.Owners)
	if err != nil {
		return fmt.Errorf("--owners: %w", err)
	}
	ownNetNS := cmp.Or(c.CNINetNS, plugin.DefaultNetNS)
	a.engine = engine.New(engine.Options{
		Options: attachment.Options{
			Node: c.NodeName, BootID: boot, Exclude: c.ExcludeAddresses, EnableIPv4: c.EnableIPv4, EnableIPv6: c.EnableIPv6,
			VerifyInterval: c.VerifyInterval, ReleaseDelay: c.ReleaseDelay, Expiration: c.IPAMExpiration, WarmLeases: c.WarmLeases,
		},
		Pools: c.poolNames(), DefaultPool: c.IPAMDefaultIPPool, Owners: owners, RetireOwners: c.RetireOwners,
		Budget: budget, MaxProcesses: c.MaxPluginProcesses, MaxQueued: c.MaxQueuedRequests, MaxAttachments: c.MaxAttachments, Log: a.log, Observer: a.metrics, Changed: a.history.Changed,
		NamespaceExists: ended.NamespaceExists(ownNetNS), Left: unixsock.Left,
	}, engineJournal{a.journal, a.metrics, func(err error) { a.status.WriteFailed(err) }}, plugins{Runner: a.runner, conf: a.conf, locks: a.locks, unreadable: a.unreadable})

	a.ended = ended.New(a.engine, c.MissingNetNSReleaseDelay, ownNetNS, a.log)
	a.status = status.New(status.Options{
		Version: c.Version, NodeName: c.NodeName, StateDir: c.StateDir, Settings: c.Settings,
		Conf: a.conf, Plugins: a.runner, PluginTimeout: c.PluginTimeout,
		Lock:    func(network string) error { return a.locks.Acquire(network, nodelock.QueryTimeout) },
		Journal: a.journal, Engine: a.engine, Ended: a.ended.Status, Log: a.log,
		Spool: func() *models.SpoolStatus { return a.drainer.Status() },
	})
	a.api, err = httpapi.New(httpapi.Options{
		Engine: a.engine, Reporter: a.status, DefaultPool: c.IPAMDefaultIPPool, BeforeAdd: a.beforeAdd, Sandboxes: a.ended.Report, ReleaseLease: a.releaseLease,
		Peer: unixsock.PeerFrom, Callers: c.callers(), Refusals: a.refusals, StateOnly: c.HealthDetails == options.HealthAuthorized,
		Metrics: a.metrics.Handler(), Done: a.metrics.Requested, Log: a.log,
		Addressing: httpapi.Addressing{
			EnableIPv4: c.EnableIPv4, EnableIPv6: c.EnableIPv6,
			RouterIPv4: c.LocalRouterIPv4, RouterIPv6: c.LocalRouterIPv6,
			RangeIPv4: c.IPv4Range, RangeIPv6: c.IPv6Range,
		},
	})
	return err
}

// connectSpool opens the spool.
func (a *app) connectSpool() {
	dir, err := spool.Create(a.config.StateDir)
	if errors.Is(err, spool.ErrNotRoot) {
		err = nil // no container runtime calls it
	}
	if err != nil {
		a.log.WithError(err).Warn("DELs of container runtimes cannot be left for this daemon while it is away")
	}
	a.drainer = drain.New(dir, err, drainedEngine{a.engine}, a.log)
}

// beforeAdd prepares the ADD of a container interface. An error refuses it.
func (a *app) beforeAdd(ctx context.Context, network string, c call.Container) error {
	a.ended.Adding(c.NetNS)
	return a.drainer.BeforeAdd(ctx, network, c.Attachment)
}

// registerMetrics registers the metrics that are collected at each scrape, and the series of the
// operations and of the configured plugins.
func (a *app) registerMetrics() {
	a.metrics.RegisterAPI(a.api.Operations())
	a.metrics.Register(a.engine, func() *models.DelegatedIPAMStatus { return a.status.Report(context.Background(), "") })
	for _, pool := range a.config.poolNames() {
		if n, err := a.conf.Network(pool); err == nil {
			a.metrics.RegisterPlugin(n.IPAMType)
		}
	}
}

// createPlugins creates the plugin runner and the watcher of the CNI configuration.
func (a *app) createPlugins(state *statedir.Dir) (err error) {
	c := a.config
	o := c.PluginOptions()
	o.Log, o.Observer, o.LockDir = a.log, a.metrics, state.File
	if _, err := o.Profiles(); err != nil {
		a.log.WithError(err).Error("Not ready: a plugin profile is invalid; no new addresses are allocated until it is fixed")
	}
	if a.runner, err = plugin.New(o); err != nil {
		return err
	}
	networks := c.NetworkOptions()
	networks.Log = a.log
	a.conf, err = cniconf.New(networks)
	return err
}

// lockNetworks acquires the node lock of each network of the configured pools and of each
// network that a record names, which may hold addresses in a pool that is no longer
// configured. A network that is configured later is locked before its first use.
func (a *app) lockNetworks() error {
	for _, network := range recordedNetworks(a.loaded.Records) {
		if err := a.locks.Acquire(network, nodelock.QueryTimeout); err != nil {
			return fmt.Errorf("state directory %s has records of network %q: %w", a.config.StateDir, network, err)
		}
	}
	for _, pool := range a.config.poolNames() {
		n, err := a.conf.Network(pool)
		if err != nil {
			continue // logged by the watcher, which waits for a configuration
		}
		if err := a.locks.Acquire(n.Name, nodelock.QueryTimeout); err != nil {
			return err
		}
		if why := a.runner.Embedded(n.IPAMType); why != "" {
			a.log.WithFields(logrus.Fields{"poolName": pool, "plugin": n.IPAMType, "reason": why}).Info("The plugin runs in this process")
		}
	}
	return nil
}

// recordedNetworks returns the networks that records name, sorted.
func recordedNetworks(records []attachment.Record) []string {
	names := map[string]bool{}
	for _, r := range records {
		names[r.Network] = true
		for _, c := range r.Invocations {
			names[c.Network] = true
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// unreadable returns an error if there are records whose content is unknown.
func (a *app) unreadable() error {
	quarantined, err := a.journal.Quarantined()
	if n := len(quarantined); err == nil && n > 0 {
		err = fmt.Errorf("quarantine/ has %d files (status), and the addresses in them may be in use", n)
	}
	return err
}

// reportProblems logs what Load has moved to quarantine/.
func (a *app) reportProblems() {
	for _, p := range a.loaded.Problems {
		log := a.log.WithError(p.Reason)
		if p.Owner == "" {
			log.Error("The journal cannot be used and was moved to quarantine/: this start begins without any attachment, as after a lost journal")
			continue
		}
		log.WithFields(logrus.Fields{"owner": p.Owner, "poolName": p.Pool}).Error("A record cannot be used and was moved to quarantine/; the addresses of its owner are unknown")
	}
}
