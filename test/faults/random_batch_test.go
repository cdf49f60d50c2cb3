package faults

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// batch runs many cases on one node with one daemon. A case is an owner with its requests; one
// history has the responses of all. So a case costs little more than its plugin calls.
type batch struct {
	t       *testing.T
	node    *harness.Node
	daemon  *harness.Daemon
	flags   []string
	client  harness.Client
	history *oracle.History
	owners  []*batchOwner

	// requestLock is read-locked during a request, and write-locked while no client may send one.
	requestLock sync.RWMutex
}

// batchOwner is one case.
type batchOwner struct {
	name string
	dice *rand.Rand
	// interrupted means that the last request got no response.
	interrupted bool
	// last is the last address of the owner.
	last netip.Addr
	// pod means that the owner's pod exists (lateBatch).
	pod bool
}

// eachBatch runs a parallel subtest for each batch, of which each has that many cases.
func eachBatch(t *testing.T, class string, batches, cases int, test func(*testing.T, *stats, uint64)) {
	t.Parallel()
	st := newStats(t, class)
	for i := range batches {
		t.Run(fmt.Sprintf("batch %d", i), func(t *testing.T) {
			t.Parallel()
			st.countCases(t, cases)
			test(t, st, uint64(i))
		})
	}
}

// newBatch returns a batch whose random choices follow from the seed and the number of the batch.
// It uses the binary with failpoints, without a plan, because the race detector in the binary
// under test would take most of the time.
func newBatch(t *testing.T, n *harness.Node, number uint64, owners int, flags ...string) *batch {
	n.Program = harness.Failpoints(t)
	b := &batch{t: t, node: n, flags: flags, client: harness.Client{Socket: n.Socket}, history: oracle.NewHistory()}
	for i := range owners {
		dice := rand.New(rand.NewPCG(seed(t), number<<16|uint64(i)))
		b.owners = append(b.owners, &batchOwner{name: fmt.Sprintf("case-%d", i), dice: dice})
	}
	return b
}

// start starts a daemon and returns when it responds.
func (b *batch) start() {
	b.daemon = b.node.Launch(b.t, b.flags...)
	b.daemon.WaitServing(b.t)
}

// run does that many steps for every owner concurrently, and calls event that many times meanwhile.
func (b *batch) run(steps, events int, step func(*batchOwner), event func(*rand.Rand)) {
	dice := b.owners[0].dice
	schedule := newSchedule(dice, steps*len(b.owners), events)
	source := rand.New(rand.NewPCG(dice.Uint64(), 0))
	var all sync.WaitGroup
	for _, o := range b.owners {
		all.Go(func() {
			for range steps {
				step(o)
				schedule.signal(schedule.left.Add(-1))
			}
		})
	}
	go func() {
		all.Wait()
		close(schedule.due)
	}()
	for range schedule.due {
		event(source)
	}
}

// kill kills the daemon. Requests wait until requestLock is unlocked.
func (b *batch) kill() {
	b.daemon.Kill(b.t)
	b.requestLock.Lock()
}

// send sends a request of an owner, and records the response. It waits while no daemon serves,
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

// allocateNow is an allocate with sendNow, again while plugin calls take too long on a busy machine.
func (b *batch) allocateNow(o *batchOwner) (harness.Response, []netip.Addr) {
	r := allocation(o.name, "")
	a, ok := b.sendNow(o, r)
	for ok && strings.Contains(a.String(), "--plugin-timeout") {
		a, ok = b.sendNow(o, r)
	}
	return a, r.addresses(a)
}

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
	harness.Eventually(b.t, "every invariant to hold", func() error {
		list, now, err := b.observe(empty)
		if err != nil {
			return err
		}
		return checkState(b.history, list, now)
	})
}

// observe returns the list, and the state of the plugin's store.
func (b *batch) observe(empty []netip.Addr) ([]harness.Attachment, oracle.Snapshot, error) {
	stored, err := b.node.Store()
	list := b.daemon.List(b.t)
	return list, oracle.Snapshot{Stored: stored, Listed: harness.Held(list), Orphaned: empty}, err
}

// finish waits for consistency, allocates for every owner, and stops; the journal must equal the list.
func (b *batch) finish(empty ...netip.Addr) {
	b.waitConsistent(empty...)
	_, before, err := b.observe(empty)
	check.Must(b.t, err)
	// The addresses of a lost attachment are reserved until its owner allocates.
	if len(empty) > 0 {
		for _, o := range b.owners {
			b.send(o, allocation(o.name, ""))
		}
	}
	for _, o := range b.owners {
		a, ips := b.allocateNow(o)
		if a.Status != http.StatusCreated {
			b.t.Errorf("the last allocate of %s was answered %s", o.name, a)
		}
		for _, v := range oracle.CheckRetry(o.name, before, ips) {
			b.t.Error(v)
		}
	}
	b.waitConsistent(empty...)
	list := b.daemon.List(b.t)
	b.daemon.Stop(b.t)
	b.node.WantJournal(b.t, list)
}
