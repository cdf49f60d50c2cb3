package engine

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
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
	for name, family := range map[string]record.Family{"both families": "", "one family": record.IPv4} {
		run(t, "before the request: "+name, nil, func(f *fixture) {
			gone, leave := context.WithCancel(context.Background())
			leave()
			_, err := f.Allocate(gone, AllocateRequest{Owner: "router", Family: family})
			f.wantError(err, protocol.Busy, "disconnected")
			synctest.Wait()
			f.wantSteps("")
		})
	}
	run(t, "during the ADD", with(gatedAdd), func(f *fixture) {
		result, leave := f.startAllocate(AllocateRequest{Owner: "router"})
		leave()
		f.wantError(<-result, protocol.Busy, "disconnected")
		f.openGate()
		f.wantHeld("router", "10.0.0.1")
	})
	run(t, "during the ADD for a generated owner", with(gatedAdd), func(f *fixture) {
		result, leave := f.startAllocate(AllocateRequest{})
		leave()
		f.wantError(<-result, protocol.Busy, "disconnected")
		f.openGate()
		f.wantNone()
	})
}

func TestBudget(t *testing.T) {
	run(t, "late outcome is recorded", with(gatedAdd), func(f *fixture) {
		f.wantError(f.tryAllocate("router"), protocol.Busy, "1m20s", "recorded")
		f.openGate()
		f.wantHeld("router", "10.0.0.1")
	})
}
