package engine

import (
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
)

// load adds one record at start; Engine.mu is held.
func (e *Engine) load(r attachment.Record) {
	if e.pools[r.Pool] == nil { // a pool that was removed
		e.pools[r.Pool] = newPool(e.opts.MaxProcesses)
	}
	alive := attachment.OfContainer(r.Owner) && r.BootID != e.opts.BootID && e.opts.NamespaceExists != nil && e.opts.NamespaceExists(r)
	a := newEntry(attachment.Key{Pool: r.Pool, Owner: r.Owner}, e.pools[r.Pool], User{ID: r.User, Ordinary: r.User != 0})
	s := attachment.Load(r, &e.opts.Options, time.Now(), alive)
	if e.opts.RetireOwners && ofAPI(r.Owner) && !e.opts.Owners.Match(r.Owner) {
		s.ReleaseAs = attachment.Retire
	}
	if attachment.IsWarm(r.Owner) && !slices.Contains(e.opts.Pools, r.Pool) {
		s.ReleaseAs = attachment.Cleanup
	}
	e.publish(a, s)
	if a.Lost {
		e.stats.count(attachment.EventLost)
	}
	e.byID[a.ID] = a
	i, _ := e.position(a.Key)
	e.sorted = slices.Insert(e.sorted, i, a) // usually at the end: the journal has this order for each pool
	e.owned.add(1, a)
	// Of two records with the same address, the younger one is lost unless a lookup finds it.
	if other, _ := e.index.conflict(a, a.Rec.Network, a.Rec.Reserved(), false); other != nil && a.Rec.State != attachment.Releasing {
		e.stats.count(attachment.EventDuplicate)
		e.logger(a).WithField(fieldOther, other.String()).Error("Two records have the same address")
	}
	a.shared.workqueue.add(a)
}

// logBoot logs that the boot ID changed, and what that means for the containers.
func (e *Engine) logBoot(before []attachment.Record) {
	var kept, ended int
	var boot string
	for _, r := range before {
		i, _ := e.position(attachment.Key{Pool: r.Pool, Owner: r.Owner})
		a := e.sorted[i]
		switch {
		case r.BootID == e.opts.BootID || !attachment.OfContainer(r.Owner):
			continue
		case a.Rec.BootID == e.opts.BootID:
			kept++
		case a.Rec.State == attachment.Releasing:
			ended++
		}
		boot = r.BootID
	}
	if boot == "" {
		return
	}
	e.opts.Log.WithFields(logrus.Fields{"bootID": e.opts.BootID, "before": boot, "released": ended, "kept": kept}).
		Info("The boot ID changed: containers are released unless their network namespaces exist")
}
