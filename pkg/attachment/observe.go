package attachment

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// Action is what is done with an attachment.
type Action string

// What clients ask for, then what the engine does by itself.
const (
	ActionAllocate Action = "allocate"
	ActionRestore  Action = "restore"
	ActionRelease  Action = "release"
	// ActionExpire: a hand-out was not confirmed in time.
	ActionExpire Action = "expire"
	// ActionRetire: --owners does not admit the owner any more (--retire-owners).
	ActionRetire Action = "retire"
	// ActionReacquire: an acquisition that was cut short or lost is made good.
	ActionReacquire Action = "reacquire"
	// ActionCleanup: what was released, or never handed out, goes back to the plugin.
	ActionCleanup Action = "cleanup"
)

// EventOutcome is how an action ended.
type EventOutcome string

const (
	// OutcomeSuccess: it is done.
	OutcomeSuccess EventOutcome = "success"
	// OutcomeRejected: a rule of ours, or what is held already, stands against it; the plugin is not to blame.
	OutcomeRejected EventOutcome = "rejected"
	// OutcomeFailed: plugin, journal or configuration stood in its way.
	OutcomeFailed EventOutcome = "failed"
)

// Event is one action that has ended.
type Event struct {
	Action  Action
	Outcome EventOutcome
	Pool    string
	// Families are those that it was about.
	Families []record.Family
}

// Queue is a queue in which work waits for its turn.
type Queue string

const (
	// QueueEntry: one operation at a time per attachment.
	QueueEntry Queue = "attachment"
	// QueueProcess: --max-plugin-processes.
	QueueProcess Queue = "process"
	// QueueBackground: attachments that need attention.
	QueueBackground Queue = "background"
)

// Observer is told what cannot be seen from outside. It is called by many at
// once, may not block, and must not call the engine.
type Observer interface {
	// ActionDone tells of an action that has ended.
	ActionDone(Event)
	// QueueWait tells how long work has waited for its turn or for a process, in vain
	// or not.
	QueueWait(Queue, time.Duration)
}

// nopObserver is the observer where none is wanted.
type nopObserver struct{}

func (nopObserver) ActionDone(Event)               {}
func (nopObserver) QueueWait(Queue, time.Duration) {}

// queue counts who waits in it.
type queue struct{ waiting atomic.Int64 }

// wait notes how long until takes, and that somebody waits as long as it does. The
// wait ends with the client and with our own life.
func (o *op) wait(w Queue, q *queue, until func(context.Context) error) error {
	ctx, cancel := context.WithCancel(o.client)
	defer cancel()
	defer context.AfterFunc(o.life, cancel)()
	if o.life.Err() != nil {
		cancel() // at once: what AfterFunc does comes later
	}
	began := time.Now()
	q.waiting.Add(1)
	defer q.waiting.Add(-1)
	defer func() { o.Observer.QueueWait(w, time.Since(began)) }()
	return until(ctx)
}

// QueueLengths is how many wait in each queue.
func (e *Engine) QueueLengths() map[Queue]int {
	return map[Queue]int{
		QueueEntry:      int(e.turns.waiting.Load()),
		QueueProcess:    int(e.processes.waiting.Load()),
		QueueBackground: e.errands.len(),
	}
}

// outcomeOf is how an action ended of which err is known.
func outcomeOf(err error) EventOutcome {
	var known *Error
	switch {
	case err == nil:
		return OutcomeSuccess
	case errors.As(err, &known) && known.Kind != Failed:
		return OutcomeRejected
	default:
		return OutcomeFailed
	}
}

// happened tells the observer of an action that has ended.
func (e *Engine) happened(a Action, pool string, families []record.Family, err error) {
	e.Observer.ActionDone(Event{Action: a, Outcome: outcomeOf(err), Pool: pool, Families: families})
}

// families are those of the recorded addresses; where none is recorded, those
// that an ADD would be for.
func (o *op) families() []record.Family {
	var families []record.Family
	for _, ip := range o.addresses() {
		if f := record.FamilyOf(ip); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	if len(families) == 0 {
		return o.wanted("")
	}
	return families
}
