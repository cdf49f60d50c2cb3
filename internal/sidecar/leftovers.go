package sidecar

import (
	"context"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/statedir"
)

// releaseLeftovers releases the leases that the previous boot has left without a record: those under the sidecar's own
// IDs, which a power loss brings back after their release, and, where all pods go through the sidecar, those of
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
