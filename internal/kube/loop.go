package kube

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
)

// Loop runs the reconciliations of one object, one at a time.
type Loop struct {
	queue   workqueue.TypedDelayingInterface[string]
	backoff wait.Backoff
	// notBefore is the end of the delay after a failure, unless retry is set.
	notBefore time.Time
	retry     atomic.Bool
}

// object is the only item of the queue.
const object = "object"

func NewLoop() *Loop {
	return &Loop{queue: workqueue.NewTypedDelayingQueue[string](), backoff: Backoff()}
}

// Wake makes the loop reconcile after a delay, in which further calls have no effect. After a failure it
// waits for the end of that delay: otherwise an unavailable server would get a request for each change.
func (l *Loop) Wake(delay time.Duration) { l.queue.AddAfter(object, delay) }

// Retry ends the delay after a failure, whose cause may have ended.
func (l *Loop) Retry() {
	l.retry.Store(true)
	l.queue.Add(object)
}

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
		again := time.Until(l.notBefore)
		if l.retry.Swap(false) || again <= 0 {
			var failed bool
			if again, failed = reconcile(); failed {
				delay := l.backoff.Step()
				if again == 0 || delay < again {
					again = delay
				}
				l.notBefore = time.Now().Add(again)
			} else {
				l.backoff, l.notBefore = Backoff(), time.Time{}
			}
		}
		if again > 0 {
			l.queue.AddAfter(object, again)
		}
		l.queue.Done(object)
	}
}
