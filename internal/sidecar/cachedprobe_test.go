package sidecar

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// blocking returns a probe whose runs end when they receive from finish. The result is the run's number.
func blocking() (p *cachedProbe[int], finish chan struct{}, runs *atomic.Int32) {
	finish, runs = make(chan struct{}), new(atomic.Int32)
	p = &cachedProbe[int]{
		run: func() int {
			n := runs.Add(1)
			<-finish
			return int(n)
		},
		good:       func(int) bool { return true },
		stuckAfter: 30 * time.Second,
		running:    &sync.WaitGroup{},
	}
	return p, finish, runs
}

// probeResult refreshes a probe and waits half a second for its result.
func probeResult(p *cachedProbe[int]) (int, probeState) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	p.refresh()
	return p.result(ctx)
}

func TestProbeFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, finish, runs := blocking()
		results := make(chan int, 10)
		for range cap(results) {
			go func() {
				n, _ := probeResult(p)
				results <- n
			}()
		}
		synctest.Wait()
		finish <- struct{}{}
		for range cap(results) {
			if n := <-results; n != 1 {
				t.Errorf("got result %d; want one run for all callers", n)
			}
		}
		time.Sleep(5*time.Second - time.Millisecond)
		if n, state := probeResult(p); n != 1 || state != probeFresh || runs.Load() != 1 {
			t.Errorf("within its TTL: result %d, state %d after %d runs; want the first result", n, state, runs.Load())
		}
		time.Sleep(time.Millisecond)
		go func() { finish <- struct{}{} }()
		if n, state := probeResult(p); n != 2 || state != probeFresh {
			t.Errorf("after its TTL: result %d, state %d; want a second run", n, state)
		}
	})
}

func TestProbeStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, finish, runs := blocking()
		began := time.Now()
		if n, state := probeResult(p); state != probePending {
			t.Errorf("during the first run: result %d, state %d; want probePending", n, state)
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("the caller waited %s; want 500ms", took)
		}
		finish <- struct{}{}
		synctest.Wait()
		if n, state := probeResult(p); n != 1 || state != probeFresh {
			t.Errorf("after the first run: result %d, state %d; want its result", n, state)
		}

		time.Sleep(6 * time.Second)
		if n, state := probeResult(p); n != 1 || state != probeFresh {
			t.Errorf("during the second run: result %d, state %d; want the first result", n, state)
		}
		time.Sleep(30 * time.Second)
		if n, state := probeResult(p); state != probeStuck {
			t.Errorf("30 s later: result %d, state %d; want probeStuck", n, state)
		}
		check.Equal(t, "runs", runs.Load(), 2)
		finish <- struct{}{}
	})
}

func TestProbeOldResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, finish, _ := blocking()
		go func() { finish <- struct{}{} }()
		probeResult(p)
		time.Sleep(time.Hour)
		if n, state := probeResult(p); n != 1 || state != probeFresh {
			t.Errorf("after an idle hour, with a slow run: result %d, state %d; want the last result", n, state)
		}
		finish <- struct{}{}
	})
}

func TestProbeExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, finish, _ := blocking()
		go func() { finish <- struct{}{} }()
		probeResult(p)
		p.expire()
		if n, state := probeResult(p); state != probePending {
			t.Errorf("during the run after it: result %d, state %d; want probePending", n, state)
		}
		p.expire()
		finish <- struct{}{}
		synctest.Wait()
		go func() { finish <- struct{}{} }()
		if n, state := probeResult(p); n != 3 || state != probeFresh {
			t.Errorf("after a second one during a run: result %d, state %d; want the result of a third run", n, state)
		}
	})
}
