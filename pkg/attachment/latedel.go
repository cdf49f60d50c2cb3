package attachment

import (
	"context"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// This file is the rule of late DELs: no ADD uses a container ID on which an earlier
// DEL may still act (docs/how-it-works.md, Identity).

// del runs one DEL. After an unknown outcome the next ADD uses another container ID.
func (o *op) del(c call.Invocation) error {
	err := o.plugin.Del(context.Background(), o.call(c))
	o.calledOnce()
	if mayStillAct(err) {
		// Only in memory until the next write: a start derives it from the state again.
		r := o.rec.Clone()
		markLateDel(&r, c, time.Now())
		o.setRecord(r)
	}
	return err
}

// markLateDel records that a DEL whose process ended at a given time may still act. The
// ID is not used again before it can act no more.
func markLateDel(r *record.Record, c call.Invocation, ended time.Time) {
	until := c.Profile.DelActsUntil(ended)
	if c.Profile.SingleUseIDs() || !until.After(ended) {
		return // the ID is never used again anyway, or the DEL ended with its process
	}
	if c.ContainerID == containerid.Generation(r.ContainerID, r.Generation) {
		r.Generation++
	}
	if until.After(r.LateDel.Until) {
		r.LateDel = record.LateDel{Until: until, Seconds: int(until.Sub(ended) / time.Second)}
	}
}

// nextID returns the container ID of the next ADD with a profile.
func (o *op) nextID(p profile.Profile) string {
	if p.SingleUseIDs() {
		return containerid.Unique(o.id)
	}
	generation := 0
	if o.rec != nil {
		generation = o.rec.Generation
	}
	return containerid.Generation(o.id, generation)
}

// mayBeReleased reports whether a DEL may still act on the ID of a context that is about
// to be used.
func (o *op) mayBeReleased(c call.Invocation) bool {
	return !c.Profile.SingleUseIDs() && c.ContainerID != o.nextID(c.Profile)
}
