package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// batch is many cases on one node, which share its sidecar: each is an owner with
// requests of its own, and one history judges all answers together. So a
// case costs little more than its plugin calls.
type batch struct {
	t       *testing.T
	node    *harness.Node
	sidecar *harness.Sidecar
	flags   []string
	client  harness.Client
	history *oracle.History
	owners  []*batchOwner

	// gate is held for reading while a request is under way, and for writing while
	// there is no sidecar to ask, or no client may ask it.
	gate sync.RWMutex
	// events are the numbers of steps left at which something happens to the node.
	events map[int]bool
	due    chan struct{}

	mu   sync.Mutex
	left int
}

// batchOwner is one case: an owner and what it has asked for.
type batchOwner struct {
	name string
	dice *rand.Rand
	// cut tells that the last request was not answered.
	cut bool
	// last is the address that the owner had last.
	last netip.Addr
}

// newBatch returns a batch whose owners follow from a seed and the number of the
// batch. The binary is the one with failpoints, of which none is used: the one
// under test has the race detector, which would take most of the time.
func newBatch(t *testing.T, n *harness.Node, number uint64, owners int, flags ...string) *batch {
	t.Helper()
	n.Program = harness.Failpoints(t)
	b := &batch{
		t: t, node: n, flags: flags, client: harness.Client{Socket: n.Socket},
		history: oracle.NewHistory(), due: make(chan struct{}),
	}
	from := seed(t)
	for i := range owners {
		dice := rand.New(rand.NewPCG(from, number<<16|uint64(i)))
		b.owners = append(b.owners, &batchOwner{name: fmt.Sprintf("case-%d", i), dice: dice})
	}
	return b
}

// start runs a sidecar and returns when it answers.
func (b *batch) start() {
	b.t.Helper()
	b.sidecar = b.node.Launch(b.t, b.flags...)
	b.sidecar.WaitServing(b.t)
}

// run lets every owner do so many steps, all at the same time. So many times
// meanwhile, at moments that the seed draws, it calls event.
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
		close(b.due)
	}()
	for range b.due {
		event(source)
	}
}

func (b *batch) stepDone() {
	b.mu.Lock()
	b.left--
	due := b.events[b.left]
	b.mu.Unlock()
	if due {
		b.due <- struct{}{}
	}
}

// kill ends the sidecar in the middle of what it does. Requests wait until resume.
func (b *batch) kill() {
	b.t.Helper()
	b.sidecar.Kill(b.t)
	b.gate.Lock()
}

func (b *batch) resume() { b.gate.Unlock() }

// send asks in the name of an owner, and notes the answer. It waits while no
// sidecar serves. False: no answer came.
func (b *batch) send(o *batchOwner, r request) (harness.Response, bool) {
	b.gate.RLock()
	defer b.gate.RUnlock()
	return b.sendNow(o, r)
}

// sendNow is send for who holds the gate.
func (b *batch) sendNow(o *batchOwner, r request) (harness.Response, bool) {
	r.sent(b.history)
	a, err := b.client.Try(r.method, r.path, r.header...)
	o.cut = err != nil
	if err != nil {
		return a, false
	}
	r.answered(b.history, a)
	if ips := b.history.Has(o.name); len(ips) > 0 {
		o.last = ips[0]
	}
	return a, true
}

// ask does one request that the owner may well do now.
func (b *batch) ask(o *batchOwner) {
	has := b.history.Has(o.name)
	switch n := o.dice.IntN(10); {
	case n < 4 && len(has) > 0:
		for _, ip := range has {
			b.send(o, release(ip, o.name))
		}
	case n == 9 && len(has) == 0 && o.last.IsValid():
		b.send(o, restoration(o.last.String(), o.name))
	default:
		b.send(o, allocation(o.name, ""))
	}
}

// settle waits until nothing is under way and every invariant holds.
func (b *batch) settle(unborn ...netip.Addr) {
	b.t.Helper()
	harness.Eventually(b.t, "every invariant to hold", func() error {
		list, now, err := b.seen(unborn)
		if err != nil {
			return err
		}
		var errs []error
		for _, v := range b.history.Judge(now) {
			errs = append(errs, v)
		}
		for _, a := range list {
			barred := slices.ContainsFunc(harness.Held([]harness.Attachment{a}), func(h oracle.Held) bool {
				return slices.Contains(now.Unborn, h.IP)
			})
			if a.State == "releasing" || a.State == "adding" && !barred {
				errs = append(errs, fmt.Errorf("%s is still %s: %s", a.ContainerID, a.State, a.LastError))
			}
		}
		return errors.Join(errs...)
	})
}

// seen is what store and list say now.
func (b *batch) seen(unborn []netip.Addr) ([]harness.Attachment, oracle.Final, error) {
	stored, err := b.node.Store()
	list := b.sidecar.List(b.t)
	return list, oracle.Final{Stored: stored, Listed: harness.Held(list), Unborn: unborn}, err
}

// end settles, lets every owner ask for what it has, and stops the sidecar, whose
// journal must be what it has said last.
func (b *batch) end(unborn ...netip.Addr) {
	b.t.Helper()
	b.settle(unborn...)
	_, before, err := b.seen(unborn)
	must(b.t, err)
	// What a lost attachment has, no other owner is given until its own has asked.
	if len(unborn) > 0 {
		for _, o := range b.owners {
			b.send(o, allocation(o.name, ""))
		}
	}
	for _, o := range b.owners {
		r := allocation(o.name, "")
		a, ok := b.send(o, r)
		// host-local may offer what is reserved for a lost owner, and another one next time.
		for i := 0; i < len(b.owners) && strings.Contains(string(a.Body), "has already"); i++ {
			a, ok = b.send(o, r)
		}
		if !ok || a.Status != http.StatusCreated {
			b.t.Errorf("%s asked in the end and was answered %s", o.name, a)
		}
		for _, v := range oracle.Retried(o.name, before, r.addresses(a)) {
			b.t.Error(v)
		}
	}
	b.settle(unborn...)
	list := b.sidecar.List(b.t)
	b.sidecar.Stop(b.t)
	b.node.WantJournal(b.t, list)
}

// addressesOf reads what a plugin has answered.
func addressesOf(t *testing.T, texts []string) []netip.Addr {
	t.Helper()
	ips := make([]netip.Addr, len(texts))
	for i, text := range texts {
		ips[i] = netip.MustParseAddr(text)
	}
	return ips
}
