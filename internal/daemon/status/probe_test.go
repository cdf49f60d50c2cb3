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

// controlled is a probe whose runs end when they receive their result from finish.
type controlled struct {
	*probe[int]
	t      *testing.T
	finish chan int
}

func newControlled(t *testing.T) *controlled {
	t.Helper()
	finish := make(chan int)
	return &controlled{t: t, finish: finish, probe: newProbe(&Reporter{}, 30*time.Second, -1, func() int { return <-finish })}
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
		c.start()
		c.start() // not a second one
		c.want("during the first run", -1)
		c.finishWith(2)
		c.want("after it", 2)
		c.start()
		time.Sleep(30*time.Second - time.Millisecond)
		c.want("during the second run", 2)
		time.Sleep(time.Millisecond)
		c.want("when that is stuck", -1)
		c.finishWith(4)
		c.want("after it", 4)
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
		// Not before get waits: it would begin another run.
		go func() { time.Sleep(time.Millisecond); c.finish <- 4 }()
		check.Equal(t, "second", get(), 4)
	})
}
