package attachment

import (
	"errors"
	"net/netip"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// This file says how operations ended: one line of the log and one event each.

// outcome is the line of an operation that has ended: what it did, with which
// addresses, and how long it took.
func (o *op) outcome(ips []netip.Addr) logrus.FieldLogger {
	return o.log().WithFields(logrus.Fields{fieldAction: o.action, fieldIPAddrs: ips, fieldDuration: time.Since(o.began)})
}

// logOutcome writes the line of a request whose client does not read its answer.
func (o *op) logOutcome(ips []netip.Addr, err error, message string) {
	if err != nil {
		o.outcome(ips).WithError(err).Warn(message)
		return
	}
	o.outcome(ips).Info(message)
}

// tell says how work in the background ended. What stands, and what is not over
// yet, is no outcome.
func (o *op) tell(was Attachment, families []record.Family, err error) {
	if err == nil && o.unfinished() {
		return
	}
	if o.action != "" {
		o.happened(o.action, o.pool, families, errors.Join(err, o.notHealed()))
	}
	switch {
	case err != nil:
		o.outcome(was.Addrs()).WithError(err).Warn("Background work failed; it is tried again")
	case o.action != "" && o.action != ActionReacquire: // which says itself what it led to
		o.outcome(was.Addrs()).Info("Background work done")
	}
}

// unfinished tells whether what was begun comes up again by itself: an earlier ADD
// may still act, so a last DEL follows.
func (o *op) unfinished() bool {
	if o.rec == nil {
		return false
	}
	switch o.action {
	case ActionExpire:
		return o.expired()
	case ActionRetire, ActionCleanup:
		return o.rec.State == record.Releasing
	}
	return false
}

// notHealed is why a reacquire that met no error has failed all the same: what cannot
// be asked for is left to its owner's next request.
func (o *op) notHealed() error {
	if o.action == ActionReacquire && o.identified().Lost {
		return errors.New("the plugin cannot be asked for these addresses")
	}
	return nil
}
