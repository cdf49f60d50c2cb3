package status

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// controlled is a probe whose runs end when they receive their result from finish; an even one is good.
type controlled struct {
	*probe[int]
	t      *testing.T
	finish chan int
}

func newControlled(t *testing.T) *controlled {
	t.Helper()
	finish := make(chan int)
	return &controlled{t: t, finish: finish, probe: newProbe(&Reporter{}, 30*time.Second, -1, func() (int, bool) {
		n := <-finish
		return n, n%2 == 0
	})}
}

// finishWith ends the run in progress, which must exist.
func (c *controlled) finishWith(result int) {
	c.finish <- result
	synctest.Wait()
}

func (c *controlled) want(name string, result int) {
	c.t.Helper()
	check.Equal(c.t, name, c.result(), result)
}

func TestCheckHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlled(t)
		c.want("before a run", -1)
		c.start(true)
		c.start(true) // not a second one
		c.want("during the first run", -1)
		c.finishWith(2)
		c.want("after it", 2)
		c.start(true)
		time.Sleep(30*time.Second - time.Millisecond)
		c.want("during the second run", 2)
		time.Sleep(time.Millisecond)
		c.want("when that is stuck", -1)
		c.finishWith(4)
		c.want("after it", 4)
	})
}

func TestCheckRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlled(t)
		c.start(true)
		c.finishWith(1)
		c.start(false)
		c.finishWith(2)
		c.start(false) // nothing is bad
		select {
		case c.finish <- 3:
			t.Error("a good result was checked again")
		default:
		}
		c.want("good", 2)
	})
}

func TestCheckFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlled(t)
		c.start(true)
		time.Sleep(time.Second)
		c.finishWith(2)
		c.start(true)
		c.fail(func(last *int) { *last += 100 })
		c.want("at once", 102)
		c.finishWith(4)
		c.want("after a run that began before", 102)
		time.Sleep(time.Second)
		c.start(false)
		c.finishWith(6)
		c.want("after a later run", 6)
	})
}

func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlled(t)
		get := func() int {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			return c.fresh(ctx)
		}
		go func() { c.finish <- 2 }()
		check.Equal(t, "first", get(), 2)
		check.Equal(t, "while it is slow", get(), 2)
		go func() { c.finish <- 4 }()
		check.Equal(t, "second", get(), 4)
	})
}
