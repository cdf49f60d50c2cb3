package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// users are the sandboxes that use each address, from the success of RunPodSandbox to StopPodSandbox.
type users struct {
	mu  sync.Mutex
	all map[netip.Addr]string
}

func (u *users) add(ip netip.Addr, id string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if other, used := u.all[ip]; used || !ip.IsValid() {
		return fmt.Errorf("sandbox %s has address %s, as %q", id, ip, other)
	}
	u.all[ip] = id
	return nil
}

func (u *users) remove(ip netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, ip)
}

// Sandboxes start and end, eight at a time over 13 addresses, while the daemon is killed repeatedly.
func TestKillsOfDaemon(t *testing.T) {
	const pods, workers = 50, 8
	n := newNode(t)
	n.configure(t, n.through(n.hostLocal("10.15.0.0/28")))
	n.startContainerd(t)
	n.Start(t).Kill(t) // it has created the spool

	ctx, cancel := context.WithTimeout(t.Context(), 3*convergeTimeout)
	defer cancel()
	used := users{all: map[netip.Addr]string{}}
	var next, failed atomic.Int32
	errs := make([]error, workers)
	var running sync.WaitGroup
	for w := range errs {
		running.Go(func() {
			for i := next.Add(1); i <= pods && errs[w] == nil; i = next.Add(1) {
				errs[w] = n.startAndEnd(ctx, fmt.Sprint("pod-", i), &used, &failed)
			}
		})
	}
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	kills, spooled := 0, 0
	for open := true; open; {
		spooled += len(n.spooled())
		s := n.Launch(t)
		select {
		case <-ended:
			open = false
		case <-time.After(time.Duration(rand.IntN(3000)) * time.Millisecond):
			kills++
		}
		s.Kill(t)
		time.Sleep(time.Duration(rand.IntN(8000)) * time.Millisecond) // a DEL waits 5 s, then it is left in the spool
	}
	check.Must(t, errors.Join(errs...))
	t.Logf("%d kills of the daemon; %d DELs in the spool at its starts; %d calls of the runtime failed and were repeated", kills, spooled, failed.Load())

	n.Start(t)
	n.waitConsistent(t, 0)
}

// startAndEnd runs a pod to its end and repeats failed calls, as a kubelet does.
func (n *node) startAndEnd(ctx context.Context, name string, used *users, failed *atomic.Int32) error {
	repeat := func(call func(attempt uint32) error) error {
		for attempt := uint32(0); ; attempt++ {
			err := call(attempt)
			if err == nil {
				return nil
			}
			failed.Add(1)
			if cluster.Sleep(ctx, 200*time.Millisecond) != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	var id string
	if err := repeat(func(attempt uint32) (err error) { id, err = n.run(ctx, name, attempt); return err }); err != nil {
		return err
	}
	ip, err := n.address(ctx, id)
	if err == nil {
		err = used.add(ip, id)
	}
	if err != nil {
		return err
	}
	if err := cluster.Sleep(ctx, time.Duration(rand.IntN(1000))*time.Millisecond); err != nil {
		return err
	}
	used.remove(ip)
	// The kubelet also ends the sandboxes whose start has failed.
	return repeat(func(uint32) error { return n.endAll(ctx, name) })
}

func (n *node) endAll(ctx context.Context, name string) error {
	list, err := n.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	for _, item := range list.GetItems() {
		if item.GetMetadata().GetName() != name {
			continue
		}
		err = errors.Join(err, n.stop(ctx, item.GetId()))
		if err == nil {
			err = n.remove(ctx, item.GetId())
		}
	}
	return err
}
