package kube

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Loop runs the reconciliations of one object, one at a time.
type Loop struct {
	queue workqueue.TypedDelayingInterface[string]
	retry Retry
	// notBefore is the end of the delay after a failure.
	notBefore time.Time
}

// object is the only item of the queue.
const object = "object"

func NewLoop() *Loop { return &Loop{queue: workqueue.NewTypedDelayingQueue[string]()} }

// Wake makes the loop reconcile after a delay, in which further calls have no effect. After a failure it
// waits for the end of that delay: otherwise an unavailable server would get a request for each change.
func (l *Loop) Wake(delay time.Duration) { l.queue.AddAfter(object, delay) }

// Run reconciles, first without delay, until ctx ends. reconcile reports whether it has failed, and when it
// is to be called again at the latest; 0 is never. After a failure it is called again anyway.
func (l *Loop) Run(ctx context.Context, reconcile func() (again time.Duration, failed bool)) {
	defer context.AfterFunc(ctx, l.queue.ShutDown)()
	defer l.queue.ShutDown()
	l.queue.Add(object)
	for {
		if _, ended := l.queue.Get(); ended || ctx.Err() != nil {
			return
		}
		if rest := time.Until(l.notBefore); rest > 0 {
			l.queue.AddAfter(object, rest)
		} else {
			l.once(reconcile)
		}
		l.queue.Done(object)
	}
}

func (l *Loop) once(reconcile func() (again time.Duration, failed bool)) {
	again, failed := reconcile()
	if !failed {
		l.retry.Reset()
	} else {
		delay := l.retry.Next()
		if again == 0 || delay < again {
			again = delay
		}
		l.notBefore = time.Now().Add(again)
	}
	if again > 0 {
		l.queue.AddAfter(object, again)
	}
}
