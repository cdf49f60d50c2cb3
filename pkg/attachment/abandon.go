package attachment

import (
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// abandonedIf releases an attachment whose client left before it got the response with
// the generated owner: no client could ever ask for it again.
func abandonedIf(generated bool) func(*op) error {
	if !generated {
		return nil
	}
	return func(o *op) error { return o.retireUnlessReleasing(o.giveBack()) }
}

// Abandon releases the attachment of a generated owner whose client did not get the
// response, without the release delay. It returns when the record is releasing, and the
// DEL follows in the background. If the record cannot be written, that is tried again
// there. After Stop, the next start runs the DEL.
func (e *Engine) Abandon(pool, owner string) {
	e.mu.Lock()
	a := e.byOwner[key{pool, owner}]
	e.mu.Unlock()
	if a == nil {
		return
	}
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	o := &op{Engine: e, entry: a, client: e.life, began: time.Now(), action: ActionCleanup}
	if o.rec == nil || o.rec.State != record.Held {
		return // it is released already
	}
	err := o.retireUnlessReleasing(o.writeReleasing())
	o.logOutcome(o.addresses(), err, "Released, because its client did not read the response")
	o.note(err)
	o.arm()
}

// retireUnlessReleasing makes each later try release an attachment whose record could
// not be written. It returns err.
func (o *op) retireUnlessReleasing(err error) error {
	if err != nil && o.rec != nil && o.rec.State != record.Releasing {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.retire = true
	}
	return err
}
