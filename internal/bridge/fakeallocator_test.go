package bridge

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// exhausted is the refusal of a plugin without addresses.
func exhausted() error {
	return &failure{refused: true, reason: reasonPoolExhausted, err: errors.New("no IP addresses available in range set")}
}

// fakeAllocator is the daemon.
type fakeAllocator struct {
	held map[int]netip.Addr
	// capacity is the number of addresses that the plugin has.
	capacity int
	// unrestorable are addresses that the plugin does not allocate any more.
	unrestorable map[netip.Addr]bool
	// unreleasable are addresses whose release fails.
	unreleasable map[netip.Addr]bool
	// latency is the duration of an acquisition.
	latency time.Duration
	// ignoresAcquire makes an acquisition succeed without effect.
	ignoresAcquire bool
	// unclaimed are what each slot has in a further family.
	unclaimed []netip.Addr
	// store is the store of the plugin's profile.
	store string
	// daemonErr is the result of every request, requestErr of one for an address.
	daemonErr, requestErr error
	// lists counts the requests that change nothing, the others the requests of their names.
	lists, acquires, restores, releases int
}

func (f *fixture) checkNode(context.Context) (served, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	return served{store: f.store}, f.daemonErr
}

func (f *fixture) slots(context.Context, []string) ([]planner.Slot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	var slots []planner.Slot
	for n, ip := range f.held {
		slots = append(slots, planner.Slot{Number: n, Addresses: []netip.Addr{ip}, Held: true, Unclaimed: f.unclaimed})
	}
	return slots, f.daemonErr
}

func (f *fixture) acquire(_ context.Context, slot int) (planner.Slot, error) {
	time.Sleep(f.latency)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acquires++
	if err := cmp.Or(f.daemonErr, f.requestErr); err != nil {
		return planner.Slot{}, err
	}
	if f.ignoresAcquire {
		return planner.Slot{Number: slot, Held: true}, nil
	}
	// The requests of a batch arrive in any order: each slot has its address if that is free.
	for i := range f.capacity {
		n := (slot+i)%f.capacity + 1
		if !slices.Contains(slices.Collect(maps.Values(f.held)), ip(n)) && !f.unrestorable[ip(n)] {
			f.held[slot] = ip(n)
			return planner.Slot{Number: slot, Addresses: []netip.Addr{ip(n)}, Held: true}, nil
		}
	}
	return planner.Slot{}, exhausted()
}

func (f *fixture) restore(_ context.Context, slot int, ip, _ netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restores++
	if f.requestErr != nil {
		return f.requestErr
	}
	if f.unrestorable[ip] {
		return &failure{refused: true, reason: reasonPluginFailed, err: errors.New("another owner has it")}
	}
	f.held[slot] = ip
	return nil
}

func (f *fixture) release(_ context.Context, slot int, ip netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.releases++
	if f.unreleasable[ip] {
		return &failure{refused: true, reason: reasonPluginFailed, err: errors.New("DEL failed")}
	}
	maps.DeleteFunc(f.held, func(n int, held netip.Addr) bool { return n == slot && held == ip })
	return nil
}
