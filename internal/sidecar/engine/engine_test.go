package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
)

func TestStop(t *testing.T) {
	run(t, "completes work in progress", with(gatedAdd, maxProcesses(1)), func(f *fixture) {
		running, _ := f.startAllocate(AllocateRequest{Owner: "running"})
		queued, _ := f.startAllocate(AllocateRequest{Owner: "queued"})
		stopped := make(chan error)
		go func() { stopped <- f.Stop(context.Background()) }()
		synctest.Wait()
		f.wantError(<-queued, protocol.Stopping)
		err := f.tryAllocate("new")
		f.wantError(err, protocol.Stopping)
		// A client must not take it for the refusal of a plugin.
		if e := (&protocol.Error{}); !errors.As(err, &e) || e.RetryAfter <= 0 {
			f.t.Errorf("%v is not to be repeated later", err)
		}
		f.openGate()
		if err := <-running; err != nil {
			f.t.Errorf("work in progress: %v", err)
		}
		if err := <-stopped; err != nil {
			f.t.Error(err)
		}
		f.wantHeld("running", "10.0.0.1")
	})
	// Without a budget the operation would be CHECK, four times DEL and ADD, and a DEL.
	run(t, "begins no plugin call after the budget", nil, func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.setStored("of a pod", "10.0.0.1", "fd00::1")
		f.node.callTime = 35 * time.Second
		f.startAllocate(AllocateRequest{Owner: "router"})
		ctx, cancel := context.WithTimeout(context.Background(), f.opts.Budget+f.node.callTime)
		defer cancel()
		if err := f.Stop(ctx); err != nil {
			f.t.Error(err)
		}
		f.node.callTime = 0
		f.clearStore()
		f.restart()
		f.wantHeld("router", "10.0.0.1")
		f.wantStoreAgrees()
	})
	run(t, "ends with its context", with(gatedAdd), func(f *fixture) {
		f.startAllocate(AllocateRequest{Owner: "running"})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := f.Stop(ctx); err == nil {
			f.t.Error("no error although a call is in progress")
		}
		f.openGate()
	})
}
