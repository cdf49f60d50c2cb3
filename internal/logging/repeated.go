package logging

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// maxKinds is the largest number of kinds of events that have separate lines.
const maxKinds = 64

// Repeated logs events that others can cause at will, so that they cannot fill the log: the first
// one of a kind, and then at most one line per interval and kind, which has the number of the events
// since the last line and the fields of the last event.
type Repeated struct {
	log      logrus.FieldLogger
	interval time.Duration

	mu sync.Mutex
	// kinds are the kinds of events of which a line was logged within the last interval.
	kinds map[any]*repetition
}

// repetition has the events of a kind since its last line.
type repetition struct {
	// timer runs for an interval after each line.
	timer *time.Timer
	// more is the number of events, and the other fields are those of the last one.
	more    int
	level   logrus.Level
	fields  logrus.Fields
	message string
}

// furtherKinds is the kind of all events above maxKinds.
type furtherKinds struct{}

// NewRepeated returns a Repeated. It has timers while events occur, which Stop ends.
func NewRepeated(log logrus.FieldLogger, interval time.Duration) *Repeated {
	return &Repeated{log: log, interval: interval, kinds: map[any]*repetition{}}
}

// Warn logs an event without a kind as a warning, or counts it for the next line.
func (r *Repeated) Warn(fields logrus.Fields, message string) {
	r.Log(nil, logrus.WarnLevel, fields, message)
}

// Log logs an event of a kind, which is comparable, or counts it for the next line of that kind. If many
// kinds occur within an interval, further ones count as one.
func (r *Repeated) Log(kind any, level logrus.Level, fields logrus.Fields, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds[kind] == nil && len(r.kinds) >= maxKinds {
		kind = furtherKinds{}
	}
	if k := r.kinds[kind]; k != nil {
		k.more++
		k.level, k.fields, k.message = level, fields, message
		return
	}
	r.log.WithFields(fields).Log(level, message)
	k := &repetition{}
	r.kinds[kind] = k
	k.timer = time.AfterFunc(r.interval, func() { r.expire(kind, k) })
}

// expire begins a new interval if there were events in the last one.
func (r *Repeated) expire(kind any, k *repetition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.kinds[kind] != k: // stopped meanwhile
	case k.more == 0:
		delete(r.kinds, kind)
	default:
		r.logMore(k)
		k.timer.Reset(r.interval)
	}
}

// Stop logs the events that no line has yet, and stops the timers. Later events start them again.
func (r *Repeated) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.kinds {
		k.timer.Stop()
		if k.more > 0 {
			r.logMore(k)
		}
	}
	clear(r.kinds)
}

func (r *Repeated) logMore(k *repetition) {
	r.log.WithFields(k.fields).WithField("repeated", k.more).Log(k.level, k.message+" (the last one since the previous line)")
	k.more, k.fields = 0, nil
}
