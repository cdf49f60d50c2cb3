package engine

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// Log fields, in Cilium's spelling.
const (
	fieldOwner       = "owner"
	fieldPool        = "poolName"
	fieldContainerID = "containerID"
	fieldIPAddrs     = "ipAddrs"
	fieldOther       = "other"
	fieldAction      = "action"
	fieldDuration    = "duration"
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

// Done is the kind of the event at the end of an action.
const Done attachment.EventKind = "Done"

// Event is what happened to an attachment. The log, the counters and the metrics follow from it.
type Event struct {
	attachment.Event
	// Action is what was done, Outcome how a Done one ended.
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
	// Happened is called with each event.
	Happened(Event)
	// QueueWait is called after each wait for an entry's lock or a plugin process, successful
	// or not.
	QueueWait(Queue, time.Duration)
}

type nopObserver struct{}

func (nopObserver) Happened(Event)                 {}
func (nopObserver) QueueWait(Queue, time.Duration) {}

// happened counts an event and passes it to the observer.
func (e *Engine) happened(ev Event) {
	e.stats.count(ev.Kind)
	e.opts.Observer.Happened(ev)
}

// actionDone reports the end of an action.
func (e *Engine) actionDone(a attachment.Action, pool string, families []attachment.Family, err error) {
	e.happened(Event{Event: attachment.Event{Kind: Done, Err: err}, Action: a, Outcome: outcomeOf(err), Pool: pool, Families: families})
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

// Report logs an event of the protocol, and passes it on.
func (w world) Report(ev attachment.Event) {
	w.engine.happened(Event{Event: ev, Action: w.Action, Pool: w.Pool, Families: w.families()})
	level := logrus.InfoLevel
	switch ev.Kind {
	case attachment.EventLost, attachment.EventDuplicate:
		level = logrus.ErrorLevel
	case attachment.EventDelFailed, attachment.EventNotHeld, attachment.EventAddToDelete, attachment.EventLostNotKept:
		level = logrus.WarnLevel
	case attachment.EventNoLookup, attachment.EventHandedOver:
		level = logrus.DebugLevel
	case attachment.EventExpired: // the line of the release says so
		return
	}
	w.outcomeLogger(w.Rec.Addrs(), ev.Err).Log(level, ev.Kind)
}

// logger adds owner, pool and container ID to each line.
func (e *Engine) logger(a *entry) logrus.FieldLogger {
	return e.opts.Log.WithFields(logrus.Fields{fieldOwner: a.Owner, fieldPool: a.Pool, fieldContainerID: a.IDInUse()})
}

func (op *operation) outcomeLogger(ips []netip.Addr, err error) *logrus.Entry {
	line := logging.ForRequest(op.callCtx(), op.engine.logger(op.entry)).WithFields(logrus.Fields{fieldAction: op.Action, fieldIPAddrs: ips, fieldDuration: time.Since(op.started)})
	if err != nil {
		line = line.WithError(err)
	}
	return line
}

// logOutcome writes the line of work whose outcome no client receives.
func (op *operation) logOutcome(ips []netip.Addr, err error, success, failure string) {
	if err != nil {
		op.outcomeLogger(ips, err).Warn(failure)
		return
	}
	op.outcomeLogger(ips, nil).Info(success)
}

// families are the families of an operation that no client requested.
func (op *operation) families() []attachment.Family {
	var families []attachment.Family
	for _, ip := range op.Rec.Addrs() {
		if f := attachment.FamilyOf(ip); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	if len(families) == 0 {
		return op.engine.requestedFamilies("")
	}
	return families
}

// QueueLengths returns the number of waiting operations by queue.
func (e *Engine) QueueLengths() map[Queue]int {
	lengths := map[Queue]int{QueueBackground: 0}
	for q, waiting := range e.waiting {
		lengths[q] = int(waiting.Load())
	}
	for _, p := range e.pools {
		lengths[QueueBackground] += p.workqueue.len()
	}
	return lengths
}

// Failure is the last failed work on an attachment. ContainerID is empty if it failed before
// there was one.
type Failure struct {
	Owner, Pool, ContainerID string
	// Text is the error, At its time; zero without a failure.
	Text string
	At   time.Time
}

// stats are what a readiness probe reads. Their lock is never held for long.
type stats struct {
	mu      sync.Mutex
	counts  map[attachment.EventKind]uint64
	failure Failure
}

// Count returns the number of events of a kind since the start.
func (e *Engine) Count(k attachment.EventKind) uint64 {
	e.stats.mu.Lock()
	defer e.stats.mu.Unlock()
	return e.stats.counts[k]
}

// LastFailure returns the last failure since the start; none if work on the attachment has succeeded since.
func (e *Engine) LastFailure() Failure {
	e.stats.mu.Lock()
	defer e.stats.mu.Unlock()
	return e.stats.failure
}

func (s *stats) count(k attachment.EventKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[k]++
}

// resolve forgets the last failure if this attachment had it.
func (s *stats) resolve(k attachment.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k == (attachment.Key{Pool: s.failure.Pool, Owner: s.failure.Owner}) {
		s.failure = Failure{}
	}
}

func (s *stats) fail(f Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = f
}

// withoutKey returns the text of an error without owner and pool at its start: the error of an
// attachment is shown with both.
func withoutKey(err error, k attachment.Key) string {
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, k.String()); ok {
		return strings.TrimLeft(rest, ": ")
	}
	return text
}
