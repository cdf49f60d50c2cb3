package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// batch runs many cases on one node with one sidecar. A case is an owner with its requests; one
// history has the responses of all. So a case costs little more than its plugin calls.
type batch struct {
	t       *testing.T
	node    *harness.Node
	sidecar *harness.Sidecar
	flags   []string
	client  harness.Client
	history *oracle.History
	owners  []*batchOwner

	// requestLock is read-locked during a request, and write-locked while no client may send
	// one.
	requestLock sync.RWMutex
	// events has the values of left at which eventDue receives a value.
	events   map[int]bool
	eventDue chan struct{}

	mu   sync.Mutex
	left int
}

// batchOwner is one case.
type batchOwner struct {
	name string
	dice *rand.Rand
	// interrupted means that the last request got no response.
	interrupted bool
	// last is the last address of the owner.
	last netip.Addr
}

// newBatch returns a batch whose random choices follow from the seed and the number of the batch.
// It uses the binary with failpoints, without a plan, because the race detector in the binary
// under test would take most of the time.
func newBatch(t *testing.T, n *harness.Node, number uint64, owners int, flags ...string) *batch {
	t.Helper()
	n.Program = harness.Failpoints(t)
	b := &batch{
		t: t, node: n, flags: flags, client: harness.Client{Socket: n.Socket},
		history: oracle.NewHistory(), eventDue: make(chan struct{}),
	}
	from := seed(t)
	for i := range owners {
		dice := rand.New(rand.NewPCG(from, number<<16|uint64(i)))
		b.owners = append(b.owners, &batchOwner{name: fmt.Sprintf("case-%d", i), dice: dice})
	}
	return b
}

// start starts a sidecar and returns when it responds.
func (b *batch) start() {
	b.t.Helper()
	b.sidecar = b.node.Launch(b.t, b.flags...)
	b.sidecar.WaitServing(b.t)
}

// run does that many steps for every owner concurrently, and meanwhile calls event that many
// times, at random times.
func (b *batch) run(steps, events int, step func(*batchOwner), event func(*rand.Rand)) {
	b.t.Helper()
	b.left = steps * len(b.owners)
	dice := b.owners[0].dice
	b.events = map[int]bool{}
	for len(b.events) < events {
		b.events[dice.IntN(b.left)] = true
	}
	source := rand.New(rand.NewPCG(dice.Uint64(), 0))
	var all sync.WaitGroup
	for _, o := range b.owners {
		all.Go(func() {
			for range steps {
				step(o)
				b.stepDone()
			}
		})
	}
	go func() {
		all.Wait()
		close(b.eventDue)
	}()
	for range b.eventDue {
		event(source)
	}
}

func (b *batch) stepDone() {
	b.mu.Lock()
	b.left--
	due := b.events[b.left]
	b.mu.Unlock()
	if due {
		b.eventDue <- struct{}{}
	}
}

// kill kills the sidecar. Requests wait until resume.
func (b *batch) kill() {
	b.t.Helper()
	b.sidecar.Kill(b.t)
	b.requestLock.Lock()
}

func (b *batch) resume() { b.requestLock.Unlock() }

// send sends a request of an owner, and records the response. It waits while no sidecar serves,
// and returns false without a response.
func (b *batch) send(o *batchOwner, r request) (harness.Response, bool) {
	b.requestLock.RLock()
	defer b.requestLock.RUnlock()
	return b.sendNow(o, r)
}

// sendNow is send for a caller that holds requestLock.
func (b *batch) sendNow(o *batchOwner, r request) (harness.Response, bool) {
	r.recordSent(b.history)
	a, err := b.client.Try(r.method, r.path, r.header...)
	o.interrupted = err != nil
	if err != nil {
		return a, false
	}
	r.recordResponse(b.history, a)
	if ips := b.history.Addresses(o.name); len(ips) > 0 {
		o.last = ips[0]
	}
	return a, true
}

// timedOut reports whether a plugin call took too long, as it may on a busy machine.
func timedOut(a harness.Response) bool { return strings.Contains(a.String(), "--plugin-timeout") }

// sendRandom sends a random request that is valid for the owner.
func (b *batch) sendRandom(o *batchOwner) {
	has := b.history.Addresses(o.name)
	switch n := o.dice.IntN(10); {
	case n < 4 && len(has) > 0:
		for _, ip := range has {
			b.send(o, release(ip, o.name))
		}
	case n == 9 && len(has) == 0 && o.last.IsValid():
		b.send(o, restore(o.last.String(), o.name))
	default:
		b.send(o, allocation(o.name, ""))
	}
}

// waitConsistent waits until no attachment is in transition and every invariant holds.
// Addresses in empty can be allocated to no owner.
func (b *batch) waitConsistent(empty ...netip.Addr) {
	b.t.Helper()
	harness.Eventually(b.t, "every invariant to hold", func() error {
		list, now, err := b.observe(empty)
		if err != nil {
			return err
		}
		var errs []error
		for _, v := range b.history.Check(now) {
			errs = append(errs, v)
		}
		for _, a := range list {
			if inTransition(a, now) {
				errs = append(errs, fmt.Errorf("%s is still %s: %s", a.ContainerID, a.State, a.LastError))
			}
		}
		return errors.Join(errs...)
	})
}

// observe returns the list, and the state of the plugin's store.
func (b *batch) observe(empty []netip.Addr) ([]harness.Attachment, oracle.Snapshot, error) {
	stored, err := b.node.Store()
	list := b.sidecar.List(b.t)
	return list, oracle.Snapshot{Stored: stored, Listed: harness.Held(list), Orphaned: empty}, err
}

// finish waits for consistency, allocates for every owner, and stops the sidecar, whose journal
// must equal its last list.
func (b *batch) finish(empty ...netip.Addr) {
	b.t.Helper()
	b.waitConsistent(empty...)
	_, before, err := b.observe(empty)
	harness.Must(b.t, err)
	// The addresses of a lost attachment are reserved until its owner allocates.
	if len(empty) > 0 {
		for _, o := range b.owners {
			b.send(o, allocation(o.name, ""))
		}
	}
	for _, o := range b.owners {
		r := allocation(o.name, "")
		a, ok := b.send(o, r)
		for ok && timedOut(a) {
			a, ok = b.send(o, r)
		}
		if !ok || a.Status != http.StatusCreated {
			b.t.Errorf("the last allocate of %s was answered %s", o.name, a)
		}
		for _, v := range oracle.CheckRetry(o.name, before, r.addresses(a)) {
			b.t.Error(v)
		}
	}
	b.waitConsistent(empty...)
	list := b.sidecar.List(b.t)
	b.sidecar.Stop(b.t)
	b.node.WantJournal(b.t, list)
}
