package attachment

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestStop(t *testing.T) {
	run(t, "completes work in progress", func(t *testing.T) {
		f := newFixture(t, gatedAdd, maxProcesses(1))
		running, _ := f.startAllocate(AllocateRequest{Owner: "running"})
		queued, _ := f.startAllocate(AllocateRequest{Owner: "queued"})
		stopped := make(chan error)
		go func() { stopped <- f.Stop(context.Background()) }()
		synctest.Wait()
		f.wantError(<-queued, Stopping)
		err := f.tryAllocate("new")
		f.wantError(err, Stopping)
		// A client must not take it for the refusal of a plugin.
		if e := (&Error{}); !errors.As(err, &e) || e.RetryAfter <= 0 {
			t.Errorf("%v is not to be repeated later", err)
		}
		f.openGate()
		if err := <-running; err != nil {
			t.Errorf("work in progress: %v", err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		f.wantHeld("running", "10.0.0.1")
	})
	run(t, "ends with its context", func(t *testing.T) {
		f := newFixture(t, gatedAdd)
		f.startAllocate(AllocateRequest{Owner: "running"})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := f.Stop(ctx); err == nil {
			t.Error("no error although a call is in progress")
		}
		f.openGate()
	})
}
