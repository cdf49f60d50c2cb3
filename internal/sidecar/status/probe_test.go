package status

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// controlled is a check whose runs end when they receive their result from finish; an even one is good.
type controlled struct {
	t *testing.T
	probe[int]
	finish  chan int
	running sync.WaitGroup
}

func newControlled(t *testing.T) *controlled {
	t.Helper()
	c := &controlled{t: t, finish: make(chan int)}
	c.unknown, c.stuckAfter, c.first = -1, 30*time.Second, make(chan struct{})
	c.run = func() (int, bool) {
		n := <-c.finish
		return n, n%2 == 0
	}
	return c
}

func (c *controlled) begin(all bool) { c.start(all, &c.running, func() {}) }

// end ends the run in progress, which must exist.
func (c *controlled) end(result int) {
	c.finish <- result
	synctest.Wait()
}

func (c *controlled) want(name string, result int, pending bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 500*time.Millisecond)
	defer cancel()
	if got, gotPending := c.result(ctx); got != result || gotPending != pending {
		c.t.Errorf("%s: result %d, pending %v; want %d, %v", name, got, gotPending, result, pending)
	}
}

func TestCheckHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlled(t)
		c.want("before a run", -1, true)
		c.begin(true)
		c.begin(true) // not a second one
		began := time.Now()
		c.want("during the first run", -1, true)
		check.Equal(t, "wait", time.Since(began), 500*time.Millisecond)
		time.Sleep(30 * time.Second)
		c.want("when it is stuck", -1, false)
		c.end(2)
		c.want("after it", 2, false)
		c.begin(true)
		time.Sleep(30*time.Second - time.Millisecond)
		c.want("during the second run", 2, false)
		time.Sleep(time.Millisecond)
		c.want("when that is stuck", -1, false)
		c.end(4)
		c.want("after it", 4, false)
	})
}

func TestCheckRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlled(t)
		c.begin(true)
		c.end(1)
		c.begin(false)
		c.end(2)
		c.begin(false) // nothing is bad
		select {
		case c.finish <- 3:
			t.Error("a good result was checked again")
		default:
		}
		c.want("good", 2, false)
	})
}

func TestCheckFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlled(t)
		c.begin(true)
		c.end(2)
		c.begin(true)
		c.fail(func(last *int) { *last += 100 })
		c.want("at once", 102, false)
		c.end(4)
		c.want("after a run that began before", 102, false)
		time.Sleep(time.Second)
		c.begin(false)
		c.end(6)
		c.want("after a later run", 6, false)
	})
}

func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlled(t)
		get := func() int {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			return c.fresh(ctx, &c.running)
		}
		go func() { c.finish <- 2 }()
		check.Equal(t, "first", get(), 2)
		check.Equal(t, "while it is slow", get(), 2)
		go func() { c.finish <- 4 }()
		check.Equal(t, "second", get(), 4)
	})
}
