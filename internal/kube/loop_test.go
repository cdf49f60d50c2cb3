package kube

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type attempts struct {
	mu sync.Mutex
	// at are their seconds since the start.
	at     []int
	again  time.Duration
	failed bool
}

func (a *attempts) seconds() []int {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at)
}

func (a *attempts) set(again time.Duration, failed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again, a.failed = again, failed
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, start := NewLoop(), &attempts{}, time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Run(ctx, func() (time.Duration, bool) {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.at = append(a.at, int(time.Since(start).Round(time.Second).Seconds()))
				return a.again, a.failed
			})
		}()
		time.Sleep(time.Minute)
		if got := a.seconds(); !slices.Equal(got, []int{0}) {
			t.Errorf("without a change it reconciled after %v s", got)
		}
		a.set(time.Minute, false)
		for range 3 {
			l.Wake(2 * time.Second)
		}
		time.Sleep(90 * time.Second)
		if got := a.seconds(); !slices.Equal(got, []int{0, 62, 122}) {
			t.Errorf("after changes it reconciled after %v s; want once, and again a minute later", got)
		}
		a.set(0, true)
		time.Sleep(time.Minute)
		before := len(a.seconds())
		if before < 7 || before > 20 {
			t.Errorf("%d attempts in a minute after a failure", before-3)
		}
		for range 1000 {
			l.Wake(0)
			synctest.Wait()
		}
		if n := len(a.seconds()) - before; n > 0 {
			t.Errorf("changes end the delay after a failure %d times", n)
		}
		a.set(0, false)
		for n := range 2 { // the first one ends the delay, and its success the next one's
			if n == 0 {
				l.Retry()
			} else {
				l.Wake(0)
			}
			if after := len(a.seconds()) - before; after != n+1 {
				t.Errorf("%d reconciliations after the end of the failure; want %d", after, n+1)
			}
		}
		cancel()
		<-ended
	})
}
