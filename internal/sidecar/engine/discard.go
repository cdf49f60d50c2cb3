package engine

import (
	"context"
	"errors"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// Leftover is an invocation of a discarded attachment. The plugin may keep its addresses.
type Leftover struct {
	call.Invocation
	// Command is a shell command that runs its DEL.
	Command string
}

// Discard releases the attachment of an owner. If a DEL fails, it is removed anyway, and the
// leftovers are its invocations. It fails as Allocate does; then the attachment is kept.
func (e *Engine) Discard(ctx context.Context, pool, owner string) (Attachment, []Leftover, error) {
	k := key{e.poolOrDefault(pool), owner}
	var left []Leftover
	req := request{action: ActionDiscard, families: e.requestedFamilies(""), work: func(op *operation) (err error) {
		left, err = op.discard()
		return err
	}}
	if _, ok := e.Record(k.pool, owner); !ok {
		a, err := e.reject(req, k.pool, newError(NotFound, "%s has no attachment", k))
		return a, nil, err
	}
	a, err := e.run(ctx, k, req)
	if err != nil {
		return a, nil, err // the work may go on
	}
	return a, left, nil
}

// discard releases the attachment, or removes its record although a DEL failed.
func (op *operation) discard() ([]Leftover, error) {
	if op.entry.rec == nil || op.entry.rec.State == record.Tombstone {
		return nil, newError(NotFound, "%s has no attachment", op)
	}
	failed := op.release()
	if _, ok := errors.AsType[*call.Error](failed); !ok {
		return nil, failed
	}
	invocations, log := op.entry.rec.Invocations, op.outcomeLogger(op.addresses()).WithError(failed)
	if err := op.removeRecord(); err != nil {
		return nil, err
	}
	var left []Leftover
	for _, c := range invocations {
		log.WithFields(logrus.Fields{fieldContainerID: c.ContainerID, "interface": c.IfName, "network": c.Network, "plugin": c.Plugin}).
			Warn("Discarded on request: the plugin may keep the addresses")
		left = append(left, Leftover{c, op.engine.plugin.CommandLine(call.VerbDel, op.call(c))})
	}
	return left, nil
}
