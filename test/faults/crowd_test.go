package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// crowd are clients that ask for the same owners at the same time and remember
// every answer.
type crowd struct {
	client harness.Client
	seed   uint64
	owners []*owner
	clock  atomic.Int64
	// left are operations that no client has begun yet.
	left atomic.Int64
	// eventAt are the numbers of operations left at which something is to happen; due is
	// told of each, and closed when all operations are done.
	eventAt map[int64]bool
	due     chan struct{}

	mu sync.Mutex
	// serving is closed while a sidecar serves.
	serving chan struct{}
	ops     []oracle.Op
	strange []string
}

func newCrowd(client harness.Client, seed uint64, owners, operations int) *crowd {
	c := &crowd{client: client, seed: seed, due: make(chan struct{}), serving: make(chan struct{})}
	for i := range owners {
		c.owners = append(c.owners, &owner{name: fmt.Sprintf("owner-%d", i)})
	}
	c.left.Store(int64(operations))
	return c
}

// spreadEvents chooses when so many things happen.
func (c *crowd) spreadEvents(events int) {
	dice := rand.New(rand.NewPCG(c.seed, 0))
	c.eventAt = map[int64]bool{}
	for len(c.eventAt) < events {
		c.eventAt[dice.Int64N(c.left.Load())] = true
	}
}

// askEveryOwner tells how everything that was cut off has ended.
func (c *crowd) askEveryOwner() {
	for _, o := range c.owners {
		c.allocate(o, 0)
	}
}

// run lets so many clients work until no operation is left.
func (c *crowd) run(clients int) {
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(c.seed, uint64(i+1)))
			for left := c.left.Add(-1); left >= 0; left = c.left.Add(-1) {
				c.step(dice)
				if c.eventAt[left] {
					c.due <- struct{}{}
				}
			}
		})
	}
	all.Wait()
	close(c.due)
}

// step does one operation of a random owner.
func (c *crowd) step(dice *rand.Rand) {
	o := c.owners[dice.IntN(len(c.owners))]
	switch n := dice.IntN(100); {
	case n < 35:
		if ip, ok := o.beginRelease(dice.IntN(2)); ok {
			c.release(o, ip)
			return
		}
		c.allocate(o, dice.IntN(3))
	case n < 50:
		c.restore(o, c.toRestore(o, dice))
	default:
		c.allocate(o, dice.IntN(3))
	}
}

// toRestore is an address that the owner has, that another one has, or any one.
func (c *crowd) toRestore(o *owner, dice *rand.Rand) netip.Addr {
	f := dice.IntN(2)
	others := []*owner{o, c.owners[dice.IntN(len(c.owners))]}
	if n := dice.IntN(3); n < len(others) {
		if ip := others[n].has(f); ip.IsValid() {
			return ip
		}
	}
	last := byte(2 + dice.IntN(250))
	if f == 0 {
		return netip.AddrFrom4([4]byte{10, 15, 0, last})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x15, 15: last})
}

// allocate asks for both families (0) or one of them.
func (c *crowd) allocate(o *owner, families int) {
	op := oracle.Op{Owner: o.name, Verb: oracle.Allocate, IPv4: families != 2, IPv6: families != 1}
	path := "/v1/ipam?owner=" + o.name + []string{"", "&family=ipv4", "&family=ipv6"}[families]
	a, ok := c.send(http.MethodPost, path, &op)
	if ok && a.Status == http.StatusCreated {
		op.Outcome, op.IPs = oracle.Done, c.addresses(a, op)
	}
	c.note(o, op)
}

func (c *crowd) restore(o *owner, ip netip.Addr) {
	op := oracle.Op{Owner: o.name, Verb: oracle.Restore, IPs: []netip.Addr{ip}}
	a, ok := c.send(http.MethodPost, "/v1/ipam/"+ip.String()+"?owner="+o.name, &op)
	switch {
	case ok && a.Status == http.StatusOK:
		op.Outcome = oracle.Done
	case ok && a.Status != http.StatusConflict && a.Status != http.StatusInternalServerError:
		c.isStrange("%s was answered %s", op, a)
	}
	c.note(o, op)
}

func (c *crowd) release(o *owner, ip netip.Addr) {
	op := oracle.Op{Owner: o.name, Verb: oracle.Release, IPs: []netip.Addr{ip}}
	if a, ok := c.send(http.MethodDelete, "/v1/ipam/"+ip.String(), &op); ok && a.Status == http.StatusOK {
		op.Outcome = oracle.Done
	}
	o.endRelease(op)
	c.note(o, op)
}

// send asks once a sidecar serves. False: no answer came, and whether the
// question was heard is not known.
func (c *crowd) send(method, path string, op *oracle.Op) (harness.Response, bool) {
	for {
		c.mu.Lock()
		serving := c.serving
		c.mu.Unlock()
		<-serving
		op.Began = c.clock.Add(1)
		a, err := c.client.Try(method, path)
		op.Ended = c.clock.Add(1)
		if unheard(a, err) {
			continue
		}
		op.Outcome = oracle.Unknown
		if err == nil {
			op.Outcome = oracle.Refused
		}
		return a, err == nil
	}
}

// unheard tells that nobody has done anything: there was no sidecar to ask, or it
// was about to stop and said so.
func unheard(a harness.Response, err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) ||
		err == nil && strings.Contains(string(a.Body), "the service is stopping; try again")
}

// addresses reads the answer to an allocate: one address of each family asked for.
func (c *crowd) addresses(a harness.Response, op oracle.Op) []netip.Addr {
	var said harness.Allocation
	if err := json.Unmarshal(a.Body, &said); err != nil {
		c.isStrange("%s was answered %s", op, a)
		return nil
	}
	var ips []netip.Addr
	for text, wanted := range map[string]bool{said.Address.IPv4: op.IPv4, said.Address.IPv6: op.IPv6} {
		ip, err := netip.ParseAddr(text)
		if wanted != (err == nil) {
			c.isStrange("%s was answered %s", op, a)
		}
		if err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// note remembers an operation that has ended.
func (c *crowd) note(o *owner, op oracle.Op) {
	if op.Outcome == oracle.Done && op.Verb != oracle.Release {
		o.got(op)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops = append(c.ops, op)
}

func (c *crowd) isStrange(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strange = append(c.strange, fmt.Sprintf(format, args...))
}

// setServing lets the clients ask, or wait.
func (c *crowd) setServing(serving bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if serving {
		close(c.serving)
	} else {
		c.serving = make(chan struct{})
	}
}

// history is what every owner certainly has, and certainly has not any more.
func (c *crowd) history() *oracle.History {
	h := oracle.NewHistory()
	for _, op := range c.givenBack() {
		h.Released(op.Owner, op.IPs...)
	}
	for _, o := range c.owners {
		for _, ip := range o.certain {
			if ip.IsValid() {
				h.Got(o.name, ip)
			}
		}
	}
	return h
}

// givenBack are the releases that were answered with success and after whose
// beginning nothing was asked for their owner that could have brought the address back.
func (c *crowd) givenBack() []oracle.Op {
	type part struct {
		owner  string
		family int
	}
	lastAsked := map[part]int64{}
	for _, op := range c.ops {
		for _, f := range familiesAsked(op) {
			p := part{op.Owner, f}
			lastAsked[p] = max(lastAsked[p], op.Ended)
		}
	}
	var out []oracle.Op
	for _, op := range c.ops {
		if op.Verb == oracle.Release && op.Outcome == oracle.Done && op.Began > lastAsked[part{op.Owner, familyOf(op.IPs[0])}] {
			out = append(out, op)
		}
	}
	return out
}

// familiesAsked are the families of which an operation may hand out an address.
func familiesAsked(op oracle.Op) []int {
	switch {
	case op.Verb == oracle.Release:
		return nil
	case op.Verb == oracle.Restore:
		return []int{familyOf(op.IPs[0])}
	case op.IPv4 && op.IPv6:
		return []int{0, 1}
	case op.IPv6:
		return []int{1}
	default:
		return []int{0}
	}
}

// count is how many operations ended so.
func (c *crowd) count(verb oracle.Verb, outcome oracle.Outcome) int {
	n := 0
	for _, op := range c.ops {
		if op.Verb == verb && op.Outcome == outcome {
			n++
		}
	}
	return n
}

// judgeHeld waits until recovery has settled, and fails the test for each invariant
// that does not hold then. It is to be asked before anybody has asked for everything
// again, which would hide an address that has come back.
func (c *crowd) judgeHeld(t testing.TB, n *harness.Node, s *harness.Sidecar) {
	t.Helper()
	harness.Eventually(t, "recovery to settle", func() error {
		for _, a := range s.List(t) {
			// A plugin of an earlier life may still act for it, after list and store agree.
			if a.State == "adding" || a.State == "releasing" {
				return fmt.Errorf("%s is still %s: %s", a.ContainerID, a.State, a.LastError)
			}
		}
		return nil
	})
	s.WaitConsistent(t)
	for _, v := range c.history().Judge(oracle.Final{Stored: n.Leases(t), Listed: harness.Held(s.List(t))}) {
		t.Error(v)
	}
	released := len(c.givenBack())
	t.Logf("%d releases were the last word of their owners", released)
	if released == 0 {
		t.Error("no owner's last word was a release: nothing was shown")
	}
}

// judge fails the test for each answer that fits no history, and for each
// invariant that does not hold in the end.
func (c *crowd) judge(t testing.TB, n *harness.Node, s *harness.Sidecar) {
	t.Helper()
	for _, what := range c.strange {
		t.Error(what)
	}
	for _, v := range oracle.CheckOps(c.ops) {
		t.Error(v)
	}
	for _, v := range c.history().Judge(oracle.Final{Stored: n.Leases(t), Listed: harness.Held(s.List(t))}) {
		t.Error(v)
	}
	for _, verb := range []oracle.Verb{oracle.Allocate, oracle.Restore, oracle.Release} {
		t.Logf("%s: %d done, %d refused, %d without an answer", verb,
			c.count(verb, oracle.Done), c.count(verb, oracle.Refused), c.count(verb, oracle.Unknown))
		if c.count(verb, oracle.Done) == 0 {
			t.Errorf("no %s succeeded: nothing was shown", verb)
		}
	}
}
