package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/history"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// releaseLeftovers releases the leases that the previous boot has left without a record: those under the daemon's own
// IDs, which a power loss brings back after their release, and, where all pods go through the daemon, those of
// containers. Only a journal that is from before the boot and complete proves that they are not in use: after a lost one
// they are adopted (docs/design/reliability.md, Leases without a record). It is called before anything is served.
func (a *app) releaseLeftovers(boot string) {
	if a.loaded.BootID == "" || a.loaded.BootID == boot {
		return
	}
	err := a.unreadable()
	complete := err == nil
	for _, pool := range a.config.poolNames() {
		n, notConfigured := a.conf.Network(pool)
		switch {
		case err != nil:
		case notConfigured == nil && a.runner.Embedded(n.IPAMType) != "":
			err = a.releaseLeftoversOf(n)
		default: // a later start of this boot may
			complete = complete && notConfigured == nil && n.IPAMType != plugin.HostLocal
		}
	}
	if err == nil && complete {
		err = a.journal.SetBoot(boot)
	}
	if err != nil {
		a.log.WithError(err).Warn("Leases of the previous boot that have no record may remain until the next start")
	}
}

func (a *app) releaseLeftoversOf(n call.Network) error {
	ctx := context.Background()
	booted, err := statedir.Host{}.Booted()
	if err != nil {
		return err
	}
	inv, err := a.runner.NewInvocation(ctx, n, "", "")
	if err != nil {
		return err
	}
	recorded := map[string]bool{}
	for _, r := range a.loaded.Records {
		for _, i := range r.Invocations {
			recorded[i.ContainerID] = true
		}
	}
	released, err := a.runner.ReleaseEnded(ctx, inv, func(containerID string, written time.Time) bool {
		ours := containerid.Match(containerID) || n.ServesContainers
		return ours && !recorded[containerID] && written.Before(booted) // a later one may be in use
	})
	for _, r := range released {
		a.log.WithField("containerID", r.ContainerID).WithField("network", n.Name).Info("Released a lease of the previous boot that has no record")
	}
	return err
}

// releaseLease releases a lease of host-local under one of the daemon's own container IDs that no attachment has. While an
// unreadable record may be that of its owner, none is.
func (a *app) releaseLease(ctx context.Context, pool string, ip netip.Addr, containerID string) error {
	refuse := func(kind attachment.Kind, format string, args ...any) error {
		return &attachment.Error{Kind: kind, Err: fmt.Errorf("the lease of %s under container ID %q: %w", ip, containerID, fmt.Errorf(format, args...))}
	}
	n, err := a.conf.Network(pool)
	switch {
	case err != nil:
		return refuse(attachment.UnknownPool, "%w", err)
	case n.IPAMType != plugin.HostLocal:
		return refuse(attachment.Failed, "the store of plugin %s is not known; expected %s", n.IPAMType, plugin.HostLocal)
	case !containerid.Match(containerID):
		return refuse(attachment.Forbidden, "not an ID of the daemon")
	case containerid.MayBeWarm(containerID):
		return refuse(attachment.Forbidden, "it may have been acquired ahead of a pod that runs, and whose record is lost; the first start after a reboot releases it")
	}
	if err := a.unreadable(); err != nil {
		return refuse(attachment.Failed, "%w", err)
	}
	if err := a.locks.Acquire(n.Name, 0); err != nil {
		return refuse(attachment.Failed, "%w", err)
	}
	inv, err := a.runner.NewInvocation(ctx, n, "", "")
	if err != nil {
		return refuse(attachment.Failed, "%w", err)
	}
	freed, err := a.runner.FreeLease(ctx, inv, ip, containerID, func(remove func()) bool { return a.engine.WhileUnused(containerID, remove) })
	switch {
	case err != nil:
		return refuse(attachment.Failed, "%w", err)
	case !freed:
		return refuse(attachment.NotFound, "there is none, or its owner has an attachment")
	}
	a.history.Add(history.Event{Event: history.Freed, Addresses: []netip.Addr{ip}, Pool: pool, Network: n.Name, ContainerID: containerID})
	a.log.WithFields(logrus.Fields{"ipAddrs": ip, "containerID": containerID, "poolName": pool, "network": n.Name}).Info("Released a lease that has no record")
	return nil
}
