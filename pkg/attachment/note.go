package attachment

import (
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// The fields of a log line, in Cilium's spelling.
const (
	fieldOwner       = "owner"
	fieldPool        = "poolName"
	fieldContainerID = "containerID"
	fieldIPAddrs     = "ipAddrs"
	fieldOther       = "other"
	fieldAction      = "action"
	fieldDuration    = "duration"
)

// Counters count what an operator must hear of, since the start.
type Counters struct {
	// Lost counts attachments of which the plugin said that it does not hold them.
	Lost uint64
	// Reacquired counts lost ones that got the same addresses back.
	Reacquired uint64
	// Duplicates counts addresses that the plugin handed out twice.
	Duplicates uint64
	// Expired counts hand-outs that were not confirmed in time.
	Expired uint64
}

// Counters returns what was counted since the start.
func (e *Engine) Counters() Counters {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counters
}

// Failure is work on an attachment that failed. ContainerID may be empty, when
// it failed before there was one.
type Failure struct {
	Owner, Pool, ContainerID string
	// Text is what went wrong, At when; zero if nothing did.
	Text string
	At   time.Time
}

// LastFailure returns the last failure since the start, mended or not.
func (e *Engine) LastFailure() Failure {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failure
}

func (o *op) count(add func(*Counters)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	add(&o.counters)
}

// logger names owner, pool and container ID in each line.
func (e *Engine) logger(a *entry) logrus.FieldLogger {
	return e.Log.WithFields(logrus.Fields{fieldOwner: a.owner, fieldPool: a.pool, fieldContainerID: a.id})
}

func (o *op) log() logrus.FieldLogger { return o.logger(o.entry) }

// note keeps how the work on an attachment ended. A refusal by our own rules,
// and a client that left the queue, say nothing about the attachment.
func (o *op) note(err error) {
	var refusal *Error
	if errors.As(err, &refusal) || err != nil && o.givenUp() && !o.begun {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.lastErr, o.failures = "", 0
		return
	}
	o.lastErr = err.Error()
	o.failure = Failure{Owner: o.owner, Pool: o.pool, ContainerID: o.id, Text: o.lastErr, At: time.Now()}
	if o.background() || o.failures == 0 { // a client that asks again postpones nothing
		o.failures++
		o.retryAt = time.Now().Add(backoff(o.failures))
	}
}

// givenUp tells that nobody waits any more: the client is gone, or we are to stop.
func (o *op) givenUp() bool { return o.client.Err() != nil || o.life.Err() != nil }

// setLost notes that the plugin does not hold the attachment, and says so once.
func (o *op) setLost(why error) {
	o.mu.Lock()
	first := !o.lost
	o.lost, o.verified = true, time.Time{}
	if first {
		o.counters.Lost++
	}
	o.mu.Unlock()
	if first {
		o.outcome(o.addresses()).WithError(why).Error("Lost: the plugin does not hold what was handed out")
	}
}

// setHeld notes that the plugin holds the attachment since just now. What changed
// was not reacquired: its owner is told another address.
func (o *op) setHeld(changed bool) {
	o.mu.Lock()
	o.lost = o.lost && !changed
	o.mu.Unlock()
	o.setVerified()
}

// setVerified notes that the plugin holds the attachment.
func (o *op) setVerified() {
	o.mu.Lock()
	reacquired := o.lost
	o.lost, o.doubted, o.verified, o.checked = false, false, time.Now(), true
	if reacquired {
		o.counters.Reacquired++
	}
	o.mu.Unlock()
	if reacquired || o.action == ActionReacquire {
		o.outcome(o.addresses()).Info("Reacquired: the plugin holds the attachment again")
	}
}

func (o *op) lastVerified() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.verified
}

func (o *op) isChecked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.checked
}

func (o *op) setChecked() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checked = true
}

// used notes that a request has its turn.
func (o *op) used() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastUsed = time.Now()
}

// identified is what is known of the attachment; without a record it only names it.
func (o *op) identified() Attachment {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rec == nil {
		return Attachment{Record: record.Record{Owner: o.owner, Pool: o.pool, ContainerID: o.id}}
	}
	return o.view()
}

// sameGrant tells whether handing out would leave the record as it is.
func sameGrant(a, b record.Record) bool {
	return a.State == b.State && len(a.Claims) == len(b.Claims) && a.Expiration == nil && b.Expiration == nil
}
