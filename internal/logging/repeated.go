package logging

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// Repeated logs events that others can cause at will, so that they cannot fill the log: the first
// one, and then at most one line per interval, which has the number of the events since the last
// line and the fields of the last event.
type Repeated struct {
	log      logrus.FieldLogger
	interval time.Duration

	mu sync.Mutex
	// timer runs for an interval after each line; nil if no line was logged within the last one.
	timer *time.Timer
	// more is the number of events since the last line, and last the fields of the last one.
	more    int
	last    logrus.Fields
	message string
}

// NewRepeated returns a Repeated that logs warnings. It has a timer while events occur, which Stop
// ends.
func NewRepeated(log logrus.FieldLogger, interval time.Duration) *Repeated {
	return &Repeated{log: log, interval: interval}
}

// Warn logs an event, or counts it for the next line.
func (r *Repeated) Warn(fields logrus.Fields, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.more, r.last, r.message = r.more+1, fields, message
		return
	}
	r.log.WithFields(fields).Warn(message)
	r.timer = time.AfterFunc(r.interval, r.expire)
}

// expire begins a new interval if there were events in the last one.
func (r *Repeated) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.timer == nil: // stopped meanwhile
	case r.more == 0:
		r.timer = nil
	default:
		r.logMore()
		r.timer.Reset(r.interval)
	}
}

// Stop logs the events that no line has yet, and stops the timer. Later events start it again.
func (r *Repeated) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer == nil {
		return
	}
	r.timer.Stop()
	r.timer = nil
	if r.more > 0 {
		r.logMore()
	}
}

func (r *Repeated) logMore() {
	r.log.WithFields(r.last).WithField("repeated", r.more).Warn(r.message + " (the last one since the previous line)")
	r.more, r.last = 0, nil
}
