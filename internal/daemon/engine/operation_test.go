package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// startAllocate begins an allocation. It returns its result, and a function that makes its client leave.
func (f *fixture) startAllocate(r AllocateRequest) (result chan error, leave func()) {
	ctx, leave := context.WithCancel(context.Background())
	f.t.Cleanup(leave)
	result = make(chan error, 1)
	go func() { _, err := f.Allocate(ctx, r); result <- err }()
	synctest.Wait()
	return result, leave
}

// openGate lets one ADD pass the gate.
func (f *fixture) openGate() {
	f.node.addGate <- struct{}{}
	synctest.Wait()
}

func TestClientLeaves(t *testing.T) {
	for name, family := range map[string]attachment.Family{"both families": "", "one family": attachment.IPv4} {
		run(t, "before the request: "+name, nil, func(f *fixture) {
			f.wantError(f.tryLeft(AllocateRequest{Owner: "router", Family: family}), attachment.Busy, "disconnected")
			synctest.Wait()
			f.wantSteps("")
		})
	}
	run(t, "during the ADD", with(gatedAdd), func(f *fixture) {
		result, leave := f.startAllocate(AllocateRequest{Owner: "router"})
		leave()
		f.wantError(<-result, attachment.Busy, "disconnected")
		f.openGate()
		f.wantHeld("router", "10.0.0.1")
	})
	run(t, "during the ADD for a generated owner", with(gatedAdd), func(f *fixture) {
		result, leave := f.startAllocate(AllocateRequest{})
		leave()
		f.wantError(<-result, attachment.Busy, "disconnected")
		f.openGate()
		f.wantNone()
	})
	run(t, "in the queue", with(gatedAdd, maxProcesses(2)), func(f *fixture) {
		f.startAllocate(AllocateRequest{Owner: "a"})
		f.startAllocate(AllocateRequest{Owner: "b"})
		result, leave := f.startAllocate(AllocateRequest{Owner: "late"})
		leave()
		f.wantError(<-result, attachment.Busy, "disconnected")
		f.openGate()
		f.openGate()
		f.wantOwners("a", "b")
		f.wantStored(2)
	})
}

func TestBudget(t *testing.T) {
	run(t, "late outcome is recorded", with(gatedAdd), func(f *fixture) {
		f.wantError(f.tryAllocate("router"), attachment.Busy, "1m20s", "recorded")
		f.openGate()
		f.wantHeld("router", "10.0.0.1")
	})
}

func TestStop(t *testing.T) {
	run(t, "completes work in progress", with(gatedAdd, maxProcesses(1)), func(f *fixture) {
		running, _ := f.startAllocate(AllocateRequest{Owner: "running"})
		queued, _ := f.startAllocate(AllocateRequest{Owner: "queued"})
		stopped := make(chan error)
		go func() { stopped <- f.Stop(context.Background()) }()
		synctest.Wait()
		f.wantError(<-queued, attachment.Stopping)
		err := f.tryAllocate("new")
		f.wantError(err, attachment.Stopping)
		// A client must not take it for the refusal of a plugin.
		if e := (&attachment.Error{}); !errors.As(err, &e) || e.RetryAfter <= 0 {
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

func TestRequestID(t *testing.T) {
	run(t, "lines and calls of a request", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.setStored("a-pod", "10.0.0.1")
		f.logged.Reset()
		var ids []string
		f.node.onCall = func(ctx context.Context, _ string, _ call.Call) { ids = append(ids, logging.RequestID(ctx)) }
		ctx, cancel := context.WithCancel(logging.WithRequestID(context.Background(), "abc"))
		del := nth(2, "DEL", refused)
		f.inject(func(step string) fault { // the second DEL before an ADD fails, and the client leaves
			injected := del(step)
			if injected != noFault {
				cancel()
			}
			return injected
		})
		_, _ = f.Allocate(ctx, AllocateRequest{Owner: "router"})
		synctest.Wait()
		for _, line := range f.logged.AllEntries() {
			ids = append(ids, fmt.Sprint(line.Data["requestID"]))
		}
		// CHECK, DEL, ADD, DEL, DEL; and the lines: lost, DEL failed, the client had left
		if want := slices.Repeat([]string{"abc"}, 5+3); !slices.Equal(ids, want) {
			f.t.Errorf("calls and lines have the request IDs %q; want %q", ids, want)
		}
	})
}
