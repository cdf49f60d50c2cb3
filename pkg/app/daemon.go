package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/metrics"
	"github.com/delegated-ipam/delegated-ipam/pkg/ownermatch"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// budget is the longest time a request waits: Cilium's clients give up at 90 s.
const budget = 80 * time.Second

// Run serves until ctx ends, then stops gracefully: it refuses new work and
// waits for plugin calls that run. The error says why it could not start, or
// what did not end well.
func Run(ctx context.Context, c Config, log logrus.FieldLogger) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	lock, err := journal.Lock(ctx, c.StateDir, func(holder string) {
		log.WithField("stateDir", c.StateDir).Warnf("Not ready: waiting for the state folder, which another process holds: %s", holder)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()

	d, err := assemble(c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.journal.Close()) }()
	defer d.guards.release()
	return d.serve(ctx)
}

// daemon is the assembled sidecar.
type daemon struct {
	*reporter
	log     logrus.FieldLogger
	metrics *metrics.Metrics
	handler http.Handler
	loaded  journal.Loaded
}

// assemble makes every part and connects them. Nothing runs yet.
func assemble(c Config, log logrus.FieldLogger) (*daemon, error) {
	boot, err := journal.Host{}.BootID()
	if err != nil {
		return nil, err
	}
	machine := journal.Host{}.MachineID()
	if machine == "" {
		log.Warn("This machine has no machine ID, so records of another machine cannot be told apart; mount the host's /etc/machine-id")
	}
	r := newReporter(c, log)
	if r.journal, err = journal.Open(c.StateDir, journal.Options{MachineID: machine}); err != nil {
		return nil, err
	}
	d := &daemon{reporter: r, log: log}
	if err := d.connect(boot, machine); err != nil {
		r.guards.release()
		return nil, errors.Join(err, r.journal.Close())
	}
	return d, nil
}

// connect makes the parts that stand on the journal.
func (d *daemon) connect(boot, machine string) (err error) {
	c := d.config
	if d.loaded, err = d.journal.Load(); err != nil {
		return err
	}
	d.reportProblems()
	d.metrics = metrics.New(metrics.Options{Version: c.Version, Pools: c.poolNames()})
	plugin := c.plugin()
	plugin.Log, plugin.Observer, plugin.LockDir = d.log, d.metrics.Plugin(), d.journal.Dir()
	if _, err := plugin.Profiles(); err != nil {
		d.log.WithError(err).Error("Not ready: a plugin profile cannot be used, so there are no new addresses; waiting until it is mended")
	}
	if d.runner, err = delegate.New(plugin); err != nil {
		return err
	}
	d.plugins = newPluginQuestions(d.runner, d.guards, &d.asking, c.PluginTimeout+delegate.DefaultGrace)
	if d.conf, err = cniconf.New(cniconf.Options{Dir: c.CNIConfDir, File: c.CNIConfFile, Pools: c.Pools, Log: d.log}); err != nil {
		return err
	}
	if err := d.guardNetworks(); err != nil {
		return err
	}
	owners, err := ownermatch.Parse(c.Owners)
	if err != nil {
		return fmt.Errorf("--owners: %w", err)
	}
	d.engine = attachment.New(attachment.Options{
		Node: c.NodeName, BootID: boot, MachineID: machine, Pools: c.poolNames(),
		EnableIPv4: c.EnableIPv4, EnableIPv6: c.EnableIPv6, Owners: owners, RetireOwners: c.RetireOwners,
		VerifyInterval: c.VerifyInterval, ReleaseDelay: c.ReleaseDelay, Expiration: c.IPAMExpiration,
		Budget: budget, MaxProcesses: c.MaxPluginProcesses, MaxQueued: c.MaxQueuedRequests, Log: d.log, Observer: d.metrics.Engine(),
	}, d.metrics.Journal(d.journal), plugins{Runner: d.runner, conf: d.conf, guards: d.guards})

	for _, n := range d.loaded.FutureVersions {
		d.engine.RejectOwner(n.Pool, n.Owner, fmt.Errorf("its record %s has version %d, which only a newer delegated-ipam understands", n.File, n.Version))
	}

	api, err := restapi.New(restapi.Options{
		Engine: d.engine, Reporter: d.reporter, OnUnread: unixsock.OnUnread, Log: d.log,
		Addressing: restapi.Addressing{
			EnableIPv4: c.EnableIPv4, EnableIPv6: c.EnableIPv6,
			RouterIPv4: c.LocalRouterIPv4, RouterIPv6: c.LocalRouterIPv6,
			RangeIPv4: c.IPv4Range, RangeIPv6: c.IPv6Range,
		},
	})
	if err != nil {
		return err
	}
	d.watched()
	d.handler = d.route(api)
	return nil
}

// guardNetworks refuses to start beside another sidecar of the same node and one of
// its networks: those of the configured pools and those that a record names, which may
// hold addresses in a pool that is not configured any more. A network that appears
// later is guarded before its first use.
func (d *daemon) guardNetworks() error {
	for _, network := range heldNetworks(d.loaded.Records) {
		if err := d.guards.take(network, askTime); err != nil {
			return fmt.Errorf("state folder %s has records of network %q: %w", d.config.StateDir, network, err)
		}
	}
	for _, pool := range d.config.poolNames() {
		n, err := d.conf.Network(pool)
		if err != nil {
			continue // the watcher has said so, and waits for one
		}
		if err := d.guards.take(n.Name, askTime); err != nil {
			return err
		}
	}
	return nil
}

// heldNetworks are the networks that records name, sorted.
func heldNetworks(records []record.Record) []string {
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

// reportProblems says loudly what could not be read.
func (d *daemon) reportProblems() {
	for _, p := range d.loaded.Problems {
		d.log.WithError(p.Reason).WithFields(logrus.Fields{"file": p.File, "containerID": p.ContainerID, "movedTo": p.MovedTo}).
			Error("A record could not be used and was put aside; its owner is not known to hold anything")
		if p.MoveErr != nil {
			d.log.WithError(p.MoveErr).WithField("file", p.File).Error("The record could not be moved to quarantine/")
		}
		if p.MovedTo == "" { // else the journal knows it
			d.problems = append(d.problems, restapi.Quarantined{File: p.File, Reason: p.Reason.Error(), Since: d.started})
		}
	}
	for _, n := range d.loaded.FutureVersions {
		reason := fmt.Sprintf("owner %q in pool %q: its record has version %d, which only a newer delegated-ipam understands; it is not served", n.Owner, n.Pool, n.Version)
		d.log.WithFields(logrus.Fields{"file": n.File, "containerID": n.ContainerID}).Error(reason)
		d.problems = append(d.problems, restapi.Quarantined{File: n.File, Reason: reason, Since: d.started})
	}
}
