package engine

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
)

// load adds one record at start; Engine.mu is held.
func (e *Engine) load(r attachment.Record) {
	if e.pools[r.Pool] == nil { // a pool that was removed
		e.pools[r.Pool] = newPool(e.opts.MaxProcesses)
	}
	alive := attachment.OfContainer(r.Owner) && r.BootID != e.opts.BootID && e.opts.NamespaceExists != nil && e.opts.NamespaceExists(r)
	a := newEntry(attachment.Key{Pool: r.Pool, Owner: r.Owner}, attachment.Load(r, &e.opts.Options, time.Now(), alive), e.pools[r.Pool])
	a.user = User{ID: r.User, Ordinary: r.User != 0}
	a.verifyDue.Store(a.Rec.State == attachment.Held)
	if first, ok := e.byOwner[a.Key]; ok {
		e.logger(a).WithField(fieldOther, first.IDInUse()).Error("A second record of this owner is ignored: release the first one and start again")
		return
	}
	if a.Lost {
		e.count(func(c *Counters) { c.Lost++ })
	}
	if e.retires(r) {
		a.ReleaseAs = attachment.Retire
	}
	e.byOwner[a.Key], e.byID[a.ID] = a, a
	e.sorted = append(e.sorted, a)
	e.owned.add(1, a)
	e.records.Store(a.Key, a.Rec)
	e.indexLoaded(a)
	a.shared.workqueue.add(a)
}

// logBoot logs that the boot ID changed, and what that means for the containers.
func (e *Engine) logBoot(before []attachment.Record) {
	var kept, ended int
	var boot string
	for _, r := range before {
		a := e.byOwner[attachment.Key{Pool: r.Pool, Owner: r.Owner}]
		switch {
		case a == nil || r.BootID == e.opts.BootID || !attachment.OfContainer(r.Owner):
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

// retires reports whether an attachment is released at start: its owner is not among Owners any more
// (RetireOwners), which are not about container interfaces.
func (e *Engine) retires(r attachment.Record) bool {
	return e.opts.RetireOwners && !attachment.OfContainer(r.Owner) && !e.opts.Owners.Match(r.Owner)
}

// indexLoaded adds the addresses of a loaded record to the index. If two records have the same
// address, the younger one is lost unless a lookup finds it (World.Older).
func (e *Engine) indexLoaded(a *entry) {
	other, _ := e.index.conflict(a, a.Rec.Network, a.Rec.Reserved())
	e.index.add(a, a.Rec.Network, a.Rec.Reserved())
	if other != nil && a.Rec.State != attachment.Releasing {
		e.count(func(c *Counters) { c.Duplicates++ })
		e.logger(a).WithField(fieldOther, other.String()).Error("Two records have the same address")
	}
}
