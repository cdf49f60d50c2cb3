package cachedprobe

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// blocking returns a probe that counts its runs, each of which ends when it receives from
// finish. Its result is the number of the run.
func blocking() (p *Probe[int], finish chan struct{}, runs *atomic.Int32) {
	finish, runs = make(chan struct{}), new(atomic.Int32)
	p = &Probe[int]{
		Run: func() int {
			n := runs.Add(1)
			<-finish
			return int(n)
		},
		TTL:        func(int) time.Duration { return 5 * time.Second },
		StuckAfter: 30 * time.Second,
		Running:    &sync.WaitGroup{},
	}
	return p, finish, runs
}

// result refreshes a probe and waits half a second for its result.
func result(p *Probe[int]) (int, State) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	p.Refresh()
	return p.Result(ctx)
}

func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, finish, runs := blocking()
		results := make(chan int, 10)
		for range cap(results) {
			go func() {
				n, _ := result(p)
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
		if n, state := result(p); n != 1 || state != Fresh || runs.Load() != 1 {
			t.Errorf("within its TTL: result %d, state %d after %d runs; want the first result", n, state, runs.Load())
		}
		time.Sleep(time.Millisecond)
		go func() { finish <- struct{}{} }()
		if n, state := result(p); n != 2 || state != Fresh {
			t.Errorf("after its TTL: result %d, state %d; want a second run", n, state)
		}
	})
}

func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, finish, runs := blocking()
		began := time.Now()
		if n, state := result(p); state != Pending {
			t.Errorf("during the first run: result %d, state %d; want Pending", n, state)
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("the caller waited %s; want 500ms", took)
		}
		finish <- struct{}{}
		synctest.Wait()
		if n, state := result(p); n != 1 || state != Fresh {
			t.Errorf("after the first run: result %d, state %d; want its result", n, state)
		}

		time.Sleep(6 * time.Second)
		if n, state := result(p); n != 1 || state != Fresh {
			t.Errorf("during the second run: result %d, state %d; want the first result", n, state)
		}
		time.Sleep(30 * time.Second)
		if n, state := result(p); state != Stuck {
			t.Errorf("30 s later: result %d, state %d; want Stuck", n, state)
		}
		if runs.Load() != 2 {
			t.Errorf("%d runs; want 2, one at a time", runs.Load())
		}
		finish <- struct{}{}
	})
}

func TestOldResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, finish, _ := blocking()
		go func() { finish <- struct{}{} }()
		result(p)
		time.Sleep(time.Hour)
		if n, state := result(p); n != 1 || state != Fresh {
			t.Errorf("after an idle hour, with a slow run: result %d, state %d; want the last result", n, state)
		}
		finish <- struct{}{}
	})
}

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, finish, _ := blocking()
		go func() { finish <- struct{}{} }()
		result(p)
		p.Expire()
		if n, state := result(p); state != Pending {
			t.Errorf("during the run after it: result %d, state %d; want Pending", n, state)
		}
		p.Expire()
		finish <- struct{}{}
		synctest.Wait()
		go func() { finish <- struct{}{} }()
		if n, state := result(p); n != 3 || state != Fresh {
			t.Errorf("after a second one during a run: result %d, state %d; want that of a third run", n, state)
		}
	})
}
