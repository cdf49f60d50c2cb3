package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/metrics"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/nodelock"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// plugins implements engine.Plugin with the networks of the current CNI configuration.
type plugins struct {
	*plugin.Runner
	conf  *cniconf.Watcher
	locks *nodelock.Locks
	// unreadable returns which records have unknown content; nil for none.
	unreadable func() error
}

// Network returns the configured network of a pool. A network that another daemon of this
// node serves is an error.
func (p plugins) Network(pool string) (call.Network, error) {
	n, err := p.conf.Network(pool)
	if err != nil {
		return call.Network{}, err
	}
	return n, p.locks.Acquire(n.Name, 0)
}

// NewInvocation refuses an ADD for an owner, before a record of it is written, if the plugin refuses the
// configuration: it would refuse the DEL, too, and the record would stay. The rest is as of the Runner.
func (p plugins) NewInvocation(ctx context.Context, n call.Network, containerID, owner string) (call.Invocation, error) {
	inv, err := p.Runner.NewInvocation(ctx, n, containerID, owner)
	if err == nil && containerID != "" {
		err = p.CheckConfig(ctx, n, inv)
	}
	return inv, err
}

// Configured returns why a pool has had no network since the process started, or why its ranges are unknown.
func (p plugins) Configured(pool string) error {
	if n, err := p.conf.Network(pool); err == nil && p.Runner.Range(n, nil) == call.RangeUnconfigured {
		return errors.New("the profiles of --plugin-profile cannot be read; `delegated-ipam status` has the reason")
	}
	return p.conf.Configured(pool)
}

// Range compares addresses with the ranges of the network that a pool has now.
func (p plugins) Range(pool string, addrs []netip.Addr) call.Range {
	n, err := p.conf.Network(pool)
	if err != nil {
		return call.RangeUnconfigured
	}
	return p.Runner.Range(n, addrs)
}

// Del runs DEL with the recorded configuration or, if the plugin refuses it, the present one.
func (p plugins) Del(ctx context.Context, c call.Call) error {
	return p.orAsConfigured(ctx, c, p.Runner.Del)
}

// Check is Del for CHECK.
func (p plugins) Check(ctx context.Context, c call.Call) error {
	return p.orAsConfigured(ctx, c, p.Runner.Check)
}

// orAsConfigured makes a call and, if the plugin refuses it without an answer, makes it as configured now
// (plugin.Runner.AsConfigured): an upgraded host-local may refuse every verb with the recorded
// configuration, and the address could never be released.
func (p plugins) orAsConfigured(ctx context.Context, c call.Call, run func(context.Context, call.Call) error) error {
	err := run(ctx, c)
	refused, ok := errors.AsType[*call.Error](err)
	if !ok || !refused.IsPluginRefusal() || call.IsLost(c.Invocation, err) || call.IsNotHeld(c.Invocation, err) {
		return err
	}
	n, confErr := p.Network(c.Pool)
	if confErr != nil {
		return err
	}
	if c.Invocation, ok = p.AsConfigured(ctx, c.Invocation, n); ok {
		return run(ctx, c)
	}
	return err
}

// GC adds to the valid attachments those of the daemon that only the plugin's store has, because the
// journal was lost. It fails if there are records of unknown content: their addresses are in use.
func (p plugins) GC(ctx context.Context, inv call.Invocation, valid []call.Attachment) error {
	if err := p.unreadable(); err != nil {
		return fmt.Errorf("the plugin's GC was not run: %w", err)
	}
	if inv.Profile.LikeHostLocal() {
		stored, err := p.Held(inv, "")
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // nothing was allocated yet
			return err
		}
		for _, s := range stored {
			if containerid.Match(s.ContainerID) {
				valid = append(valid, call.Attachment{ContainerID: s.ContainerID, IfName: s.IfName})
			}
		}
	}
	return p.Runner.GC(ctx, inv, valid)
}

// drainedEngine is the engine of the spool.
type drainedEngine struct{ *engine.Engine }

// ContainerRecord implements drain.Engine. A record of a pool that is not configured any more counts.
func (e drainedEngine) ContainerRecord(network, owner string) (attachment.Record, bool) {
	for a := range e.All() {
		if a.Owner == owner && a.Network == network {
			return a.Record, true
		}
	}
	return attachment.Record{}, false
}

// engineJournal is the journal of the engine. It measures the changes, and calls failed with each
// failure.
type engineJournal struct {
	engine.Journal
	metrics *metrics.Metrics
	failed  func(error)
}

// Write implements engine.Journal.
func (j engineJournal) Write(r attachment.Record, instead ...string) error {
	began := time.Now()
	return j.changed(metrics.JournalWrite, began, j.Journal.Write(r, instead...))
}

// Remove implements engine.Journal.
func (j engineJournal) Remove(pool string, owners ...string) error {
	began := time.Now()
	return j.changed(metrics.JournalRemove, began, j.Journal.Remove(pool, owners...))
}

// Available implements engine.Journal. A change that it prevents counts as a failed one.
func (j engineJournal) Available() error {
	err := j.Journal.Available()
	if err != nil {
		err = j.changed(metrics.JournalWrite, time.Time{}, err)
	}
	return err
}

func (j engineJournal) changed(change string, began time.Time, err error) error {
	j.metrics.JournalChanged(change, began, err)
	if err != nil {
		j.failed(err)
	}
	return err
}
