package attachment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// retryAfter is what a client is told to wait when there is no better figure.
const retryAfter = 5 * time.Second

// op is one operation on an attachment by whoever holds its turn.
type op struct {
	*Engine
	*entry
	// client ends when nobody waits for the answer any more. Only waiting for the
	// turn and for a slot heeds it: a plugin call that has begun is never given up.
	client context.Context
	begun  bool
	// second tells that it has a second slot, for a process that stands by.
	second bool
	// began is when its turn came, and action what it does: what the log says of its outcome.
	began  time.Time
	action Action
	// place is the request's place among --max-queued-requests; nil for background work.
	place *place
}

// background reports whether no client asked for the operation.
func (o *op) background() bool { return o.place == nil }

// job is what a request is for.
type job struct {
	action   Action
	families []record.Family
	work     func(*op) error
	// granted, if not nil, tells that there is nothing to do for it any more.
	granted func(*op) bool
	// abandon, if not nil, undoes what was done for a client that is gone.
	abandon func(*op) error
}

// request gives a request its turn at an attachment and does its job there, unless
// it is granted already.
func (e *Engine) request(ctx context.Context, k key, j job) (Attachment, error) {
	a, ours, err := e.approach(k)
	if err != nil {
		e.happened(j.action, k.pool, j.families, err)
		return Attachment{}, err
	}
	o := &op{Engine: e, entry: a, client: ctx, began: time.Now(), action: j.action}
	if !ours || j.granted == nil || !j.granted(o) {
		return o.outliving(ctx, ours, j)
	}
	defer e.leave(a)
	defer o.finish()
	o.used()
	o.note(nil)
	e.happened(j.action, k.pool, j.families, nil)
	return o.identified(), nil
}

// outliving does what may take long. The caller is answered when the work is done,
// the client is gone or the budget is spent; in the last two cases work goes on if
// it has begun, and its outcome is recorded. If the turn is not ours yet, it is
// waited for.
func (o *op) outliving(ctx context.Context, ours bool, j job) (Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Budget)
	defer cancel()
	o.client, o.place = ctx, &place{Engine: o.Engine, key: o.key}
	if !ours {
		if err := o.await(); err != nil {
			o.place.leave()
			err = o.unanswered(ctx, o.key, err)
			o.happened(j.action, o.pool, j.families, err)
			return Attachment{}, err
		}
		o.began = time.Now()
	}
	o.used()

	type outcome struct {
		view Attachment
		err  error
	}
	done := make(chan outcome)
	go func() {
		defer o.place.leave()
		defer o.leave(o.entry)
		err := j.work(o)
		o.note(err)
		ended := err
		if !o.begun { // then it may be the wait for a place that has ended it
			ended = o.unanswered(ctx, o.key, err)
		}
		o.happened(j.action, o.pool, j.families, ended)
		view := o.identified()
		select {
		case done <- outcome{view, err}:
		case <-ctx.Done():
			o.logOutcome(view.Addrs(), err, "Ended after its client had left")
			if j.abandon != nil && err == nil {
				o.client = o.life
				o.note(j.abandon(o))
			}
		}
		o.finish()
	}()
	select {
	case r := <-done:
		return r.view, o.unanswered(ctx, o.key, r.err)
	case <-ctx.Done():
		return Attachment{}, o.unanswered(ctx, o.key, ctx.Err())
	}
}

// unanswered turns an error into what the client of the request reads.
func (e *Engine) unanswered(ctx context.Context, k key, err error) error {
	var known *Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case e.life.Err() != nil && errors.Is(err, context.Canceled):
		return stoppingError(k)
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return &Error{Kind: Failed, Err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Error{Kind: Busy, RetryAfter: retryAfter, Err: fmt.Errorf(
			"%s: no answer within %s; what has begun goes on and is recorded, so asking again finds its outcome", k, e.Budget)}
	default:
		return fail(Busy, "%s: the client is gone", k)
	}
}

// String names pool and owner for errors.
func (k key) String() string { return fmt.Sprintf("owner %q in pool %q", k.owner, k.pool) }

func stoppingError(k key) error { return fail(Stopping, "%s: the service is stopping; try again", k) }

// containerID returns the attachment's container ID in generation 0. A recorded
// one is kept; a new one is made for the network. An ID that another attachment
// has is refused (docs/how-it-works.md, Identity).
func (o *op) containerID(network string) (string, error) {
	if o.rec != nil {
		return o.id, nil
	}
	id := containerid.ContainerID(o.owner, o.Node, network)
	o.mu.Lock()
	defer o.mu.Unlock()
	if other, ok := o.byID[id]; ok && other != o.entry {
		return "", fail(Failed, "%s: its container ID %s belongs to %s already; give it back there first", o.key, id, other.key)
	}
	if o.id != id {
		delete(o.byID, o.id)
	}
	o.byID[id], o.id = o.entry, id
	return id, nil
}
