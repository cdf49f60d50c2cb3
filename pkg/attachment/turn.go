package attachment

import (
	"context"
	"fmt"
)

// This file says whose turn it is: one operation at a time on an attachment, so
// many requests that wait (--max-queued-requests), so many plugin processes.

// place is one of the places of requests that wait. One that is answered at
// once, because nobody has the turn and the plugin need not be asked, takes none:
// who holds an address is told so however long the queue is.
type place struct {
	*Engine
	key
	taken bool
}

// take takes the place, once, or refuses the request.
func (p *place) take() error {
	if p == nil || p.taken {
		return nil
	}
	if !p.requests.TryAcquire(1) {
		return &Error{Kind: Busy, RetryAfter: retryAfter, Err: fmt.Errorf(
			"%s: %d requests are waiting or being worked on, which is the limit (--max-queued-requests); try again", p.key, p.MaxQueued)}
	}
	p.taken = true
	return nil
}

// leave gives the place back.
func (p *place) leave() {
	if p.taken {
		p.requests.Release(1)
	}
}

// approach returns the attachment of a key, made if need be. ours tells that nobody
// has the turn, which is the caller's then: it leaves; otherwise it awaits the turn.
func (e *Engine) approach(k key) (a *entry, ours bool, err error) {
	a, ours, err = e.tryTurn(k)
	if ours {
		e.Observer.QueueWait(QueueEntry, 0)
	}
	return a, ours, err
}

func (e *Engine) tryTurn(k key) (a *entry, ours bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		return nil, false, stoppingError(k)
	}
	e.running.Add(1)
	a, ok := e.byOwner[k]
	if !ok {
		a = &entry{key: k, turn: make(chan struct{}, 1)}
		e.byOwner[k] = a
	}
	a.users++
	select {
	case a.turn <- struct{}{}:
		return a, true, nil
	default:
		return a, false, nil
	}
}

// await waits for the turn at an attachment that was approached. A request, which
// has a place, takes it to wait. After an error the attachment is left already.
func (o *op) await() error {
	err := o.place.take()
	if err == nil {
		err = o.wait(QueueEntry, &o.turns, func(ctx context.Context) error {
			select {
			case o.turn <- struct{}{}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	if err != nil {
		o.unuse(o.entry)
	}
	return err
}

// leave gives the turn back.
func (e *Engine) leave(a *entry) {
	<-a.turn
	e.unuse(a)
}

// unuse forgets an attachment that nobody uses and of which nothing is recorded.
func (e *Engine) unuse(a *entry) {
	defer e.running.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	a.users--
	if a.users > 0 || a.rec != nil {
		return
	}
	delete(e.byOwner, a.key)
	delete(e.byID, a.id)
}

// begin waits for a plugin process slot, once an operation. Until it returns,
// nothing has been changed, so an operation whose client is gone ends here.
func (o *op) begin() error {
	if o.begun {
		return nil
	}
	if err := o.place.take(); err != nil {
		return err
	}
	if err := o.journal.Available(); err != nil {
		return fmt.Errorf("%s (container ID %s): %w; nothing was asked of the plugin", o.key, o.id, err)
	}
	if !o.givenUp() && o.slots.TryAcquire(1) {
		o.Observer.QueueWait(QueueProcess, 0)
		o.begun = true
		return nil
	}
	err := o.wait(QueueProcess, &o.processes, func(ctx context.Context) error { return o.slots.Acquire(ctx, 1) })
	o.begun = err == nil
	return err
}

// finish gives the slot back and sets the timer for what is due next.
func (o *op) finish() {
	if o.begun {
		o.slots.Release(1)
	}
	o.arm()
}
