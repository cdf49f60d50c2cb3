package bridge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// fakeAllocator is the sidecar.
type fakeAllocator struct {
	held map[int]netip.Addr
	// capacity is the number of addresses that the plugin has.
	capacity int
	// unrestorable are addresses that the plugin does not allocate any more.
	unrestorable map[netip.Addr]bool
	// ignoresAcquire makes an acquisition succeed without effect.
	ignoresAcquire bool
	// sidecarErr is the result of every request, requestErr of one for an address.
	sidecarErr, requestErr error
	// lists counts the requests that change nothing, the others those of their names.
	lists, acquires, restores int
}

func (f *fixture) checkNode(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	return f.sidecarErr
}

func (f *fixture) slots(context.Context) ([]planner.Slot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	var slots []planner.Slot
	for n, ip := range f.held {
		slots = append(slots, planner.Slot{Number: n, Addresses: []netip.Addr{ip}, Held: true})
	}
	return slots, f.sidecarErr
}

func (f *fixture) acquire(_ context.Context, slot int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acquires++
	if err := cmp.Or(f.sidecarErr, f.requestErr); err != nil {
		return err
	}
	if f.ignoresAcquire {
		return nil
	}
	for n := 1; n <= f.capacity; n++ {
		if !slices.Contains(slices.Collect(maps.Values(f.held)), ip(n)) && !f.unrestorable[ip(n)] {
			f.held[slot] = ip(n)
			return nil
		}
	}
	return fmt.Errorf("%w: range is exhausted", errExhausted)
}

func (f *fixture) restore(_ context.Context, slot int, ip netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restores++
	if f.requestErr != nil {
		return f.requestErr
	}
	if f.unrestorable[ip] {
		return fmt.Errorf("%w: another owner has it", errRefused)
	}
	f.held[slot] = ip
	return nil
}

func (f *fixture) release(_ context.Context, ip netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.held, func(_ int, held netip.Addr) bool { return held == ip })
	return nil
}
