package engine

import (
	"fmt"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// A DEL with an unknown outcome may act late. No ADD uses a container ID on which an earlier DEL
// may still act (docs/design/how-it-works.md, Identity).

// del runs one DEL. After an unknown outcome the next ADD uses another container ID.
func (op *operation) del(c call.Invocation) error {
	err := op.engine.plugin.Del(op.callCtx(), op.call(c))
	op.releaseSecondProcess()
	if err == nil && op.unconfirmed != nil && c.ContainerID == op.unconfirmed.IDInUse() {
		op.unconfirmed = nil
		op.setLost(fmt.Errorf("plugin %s does not hold it", c.Plugin))
	}
	if outcomeUnknown(err) {
		// Memory suffices until the next write: a start infers it from the state.
		r := op.entry.rec.Clone()
		markLateDel(&r, c, time.Now())
		op.setRecord(r)
	}
	return err
}

// markLateDel records that a DEL whose process ended at the given time may still act, so that
// its container ID is not used again before then.
func markLateDel(r *record.Record, c call.Invocation, ended time.Time) {
	until := c.Profile.DelActsUntil(ended)
	if c.Profile.SingleUseIDs() || !until.After(ended) {
		return // the ID is never used again, or the DEL ended with its process
	}
	if c.ContainerID == containerid.Generation(r.ContainerID, r.Generation) {
		r.Generation++
	}
	if until.After(r.LateDel.Until) {
		r.LateDel = record.LateDel{Until: until, Seconds: int(until.Sub(ended) / time.Second)}
	}
}

// nextID returns the container ID of the next ADD with a profile.
func (op *operation) nextID(p profile.Profile) string {
	if p.SingleUseIDs() {
		return containerid.Unique(op.entry.id)
	}
	generation := 0
	if op.entry.rec != nil {
		generation = op.entry.rec.Generation
	}
	return containerid.Generation(op.entry.id, generation)
}

// idInUseByDel reports whether a DEL may still act on the container ID of an invocation.
func (op *operation) idInUseByDel(c call.Invocation) bool {
	return !c.Profile.SingleUseIDs() && c.ContainerID != op.nextID(c.Profile)
}
