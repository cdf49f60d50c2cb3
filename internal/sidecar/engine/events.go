package engine

import (
	"errors"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/attachment"
)

// EventOutcome is how an action ended.
type EventOutcome string

const (
	OutcomeSuccess EventOutcome = "success"
	// OutcomeRejected: a rule or a held attachment prevented it; nothing failed.
	OutcomeRejected EventOutcome = "rejected"
	// OutcomeFailed: plugin, journal or configuration failed.
	OutcomeFailed EventOutcome = "failed"
)

// Event is one completed action.
type Event struct {
	Action  attachment.Action
	Outcome EventOutcome
	Pool    string
	// Families are the affected address families.
	Families []attachment.Family
}

// Queue is a queue in which operations wait.
type Queue string

const (
	QueueEntry      Queue = "attachment" // one operation at a time per attachment
	QueueProcess    Queue = "process"    // --max-plugin-processes of a pool
	QueueBackground Queue = "background" // attachments to reconcile
)

// Observer receives events and waiting times. It is called concurrently, may not block and must
// not call the engine.
type Observer interface {
	// ActionDone is called after each action.
	ActionDone(Event)
	// QueueWait is called after each wait for an entry's lock or a plugin process, successful
	// or not.
	QueueWait(Queue, time.Duration)
}

type nopObserver struct{}

func (nopObserver) ActionDone(Event)               {}
func (nopObserver) QueueWait(Queue, time.Duration) {}

func (e *Engine) actionDone(a attachment.Action, pool string, families []attachment.Family, err error) {
	e.opts.Observer.ActionDone(Event{Action: a, Outcome: outcomeOf(err), Pool: pool, Families: families})
}

func outcomeOf(err error) EventOutcome {
	var known *attachment.Error
	switch {
	case err == nil:
		return OutcomeSuccess
	case errors.As(err, &known) && known.Kind != attachment.Failed:
		return OutcomeRejected
	default:
		return OutcomeFailed
	}
}

// QueueLengths returns the number of waiting operations by queue.
func (e *Engine) QueueLengths() map[Queue]int {
	background := 0
	for _, p := range e.pools {
		background += p.workqueue.len()
	}
	return map[Queue]int{
		QueueEntry:      int(e.lockWaiters.Load()),
		QueueProcess:    int(e.processWaiters.Load()),
		QueueBackground: background,
	}
}

// Counters count events that an operator must know of, since the start.
type Counters struct {
	// Lost counts attachments that the plugin does not hold any more.
	Lost uint64
	// Reacquired counts lost attachments that got the same addresses again.
	Reacquired uint64
	// Duplicates counts addresses that the plugin allocated twice.
	Duplicates uint64
	// Expired counts allocations that were not confirmed in time.
	Expired uint64
}

func (e *Engine) Counters() Counters {
	e.statsMu.Lock()
	defer e.statsMu.Unlock()
	return e.counters
}

func (e *Engine) count(add func(*Counters)) {
	e.statsMu.Lock()
	defer e.statsMu.Unlock()
	add(&e.counters)
}

// Failure is the last failed work on an attachment. ContainerID is empty if it failed before
// there was one.
type Failure struct {
	Owner, Pool, ContainerID string
	// Text is the error, At its time; zero without a failure.
	Text string
	At   time.Time
}

// LastFailure returns the last failure since the start; none if work on the attachment has succeeded since.
func (e *Engine) LastFailure() Failure {
	e.statsMu.Lock()
	defer e.statsMu.Unlock()
	return e.failure
}

// resolveFailure forgets the last failure if this attachment had it.
func (e *Engine) resolveFailure(k attachment.Key) {
	e.statsMu.Lock()
	defer e.statsMu.Unlock()
	if k == (attachment.Key{Pool: e.failure.Pool, Owner: e.failure.Owner}) {
		e.failure = Failure{}
	}
}

func (e *Engine) setFailure(f Failure) {
	e.statsMu.Lock()
	defer e.statsMu.Unlock()
	e.failure = f
}
