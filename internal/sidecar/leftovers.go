package sidecar

import (
	"context"
	"errors"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/statedir"
)

// releaseLeftovers releases the leases that the previous boot has left without a record: those under the sidecar's own
// IDs, which a power loss brings back after their release, and, where all pods go through the sidecar, those of
// containers. Only a journal that is from before the boot and complete proves that nobody has them: after a lost one
// they are adopted (docs/design/reliability.md, Leases without a record). It is called before anything is served.
func (a *app) releaseLeftovers(boot string) {
	if a.loaded.BootID == "" || a.loaded.BootID == boot {
		return
	}
	err := a.unreadable()
	if err == nil {
		for _, pool := range a.config.poolNames() {
			if n, notConfigured := a.conf.Network(pool); notConfigured == nil && a.runner.Embedded(n.IPAMType) != "" {
				err = errors.Join(err, a.releaseLeftoversOf(n))
			}
		}
	}
	if err == nil {
		err = a.journal.SetBoot()
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
		// A program may have added a container in this boot, before the network was configured for the sidecar.
		ended := n.ServesContainers && written.Before(booted)
		return !recorded[containerID] && (ended || containerid.Match(containerID))
	})
	for _, r := range released {
		a.log.WithField("containerID", r.ContainerID).WithField("network", n.Name).Info("Released a lease of the previous boot that has no record")
	}
	return err
}
