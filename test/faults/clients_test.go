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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// clients are concurrent clients that share owners and record every operation.
type clients struct {
	client harness.Client
	seed   uint64
	owners []*sharedOwner
	clock  atomic.Int64
	*schedule

	mu         sync.Mutex
	ops        []oracle.Op
	unexpected []error
}

func newClients(client harness.Client, seed uint64, owners, operations, events int) *clients {
	c := &clients{client: client, seed: seed, schedule: newSchedule(rand.New(rand.NewPCG(seed, 0)), operations, events)}
	for i := range owners {
		c.owners = append(c.owners, &sharedOwner{name: fmt.Sprintf("owner-%d", i)})
	}
	return c
}

// allocateAll allocates for every owner, which shows the outcome of interrupted operations.
func (c *clients) allocateAll() {
	for _, o := range c.owners {
		c.allocate(o, 0)
	}
}

// run runs that many clients until no operation is left.
func (c *clients) run(clients int) {
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(c.seed, uint64(i+1)))
			for left := c.left.Add(-1); left >= 0; left = c.left.Add(-1) {
				c.step(dice)
				c.signal(left)
			}
		})
	}
	all.Wait()
	close(c.due)
}

// schedule has the numbers of remaining steps at which an event is due.
type schedule struct {
	left atomic.Int64
	at   map[int64]bool
	// due receives a value for each event, and is closed after the last step.
	due chan struct{}
}

func newSchedule(dice *rand.Rand, steps, events int) *schedule {
	s := &schedule{at: map[int64]bool{}, due: make(chan struct{})}
	s.left.Store(int64(steps))
	for len(s.at) < events {
		s.at[dice.Int64N(int64(steps))] = true
	}
	return s
}

func (s *schedule) signal(left int64) {
	if s.at[left] {
		s.due <- struct{}{}
	}
}

// step does one operation of a random owner.
func (c *clients) step(dice *rand.Rand) {
	o := c.owners[dice.IntN(len(c.owners))]
	switch n := dice.IntN(100); {
	case n < 35:
		if ip, ok := o.address(dice.IntN(2), true); ok {
			c.release(o, ip)
			return
		}
		c.allocate(o, dice.IntN(3))
	case n < 50:
		c.restore(o, c.restoreTarget(o, dice))
	default:
		c.allocate(o, dice.IntN(3))
	}
}

// restoreTarget returns an address of the owner, of another owner, or a random one.
func (c *clients) restoreTarget(o *sharedOwner, dice *rand.Rand) netip.Addr {
	f := dice.IntN(2)
	others := []*sharedOwner{o, c.owners[dice.IntN(len(c.owners))]}
	if n := dice.IntN(3); n < len(others) {
		if ip, ok := others[n].address(f, false); ok {
			return ip
		}
	}
	last := byte(2 + dice.IntN(250))
	if f == 0 {
		return netip.AddrFrom4([4]byte{10, 15, 0, last})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x15, 15: last})
}

// allocate allocates both families (0), IPv4 (1) or IPv6 (2).
func (c *clients) allocate(o *sharedOwner, families int) {
	op := oracle.Op{Owner: o.name, Verb: oracle.Allocate, IPv4: families != 2, IPv6: families != 1}
	path := "/v1/ipam?owner=" + o.name + []string{"", "&family=ipv4", "&family=ipv6"}[families]
	a, ok := c.send(http.MethodPost, path, &op)
	expected := true // one address of each requested family
	if ok && a.Status == http.StatusCreated {
		op.Outcome, op.IPs = oracle.Done, a.Addrs()
		has4, has6 := slices.ContainsFunc(op.IPs, netip.Addr.Is4), slices.ContainsFunc(op.IPs, netip.Addr.Is6)
		expected = has4 == op.IPv4 && has6 == op.IPv6
	}
	c.record(o, op, a, expected)
}

func (c *clients) restore(o *sharedOwner, ip netip.Addr) {
	op := oracle.Op{Owner: o.name, Verb: oracle.Restore, IPs: []netip.Addr{ip}, IPv4: ip.Is4(), IPv6: ip.Is6()}
	a, ok := c.send(http.MethodPost, "/v1/ipam/"+ip.String()+"?owner="+o.name, &op)
	if ok && a.Status == http.StatusOK {
		op.Outcome = oracle.Done
	}
	expected := []int{http.StatusOK, http.StatusConflict, http.StatusInternalServerError}
	c.record(o, op, a, !ok || slices.Contains(expected, a.Status))
}

func (c *clients) release(o *sharedOwner, ip netip.Addr) {
	op := oracle.Op{Owner: o.name, Verb: oracle.Release, IPs: []netip.Addr{ip}}
	a, ok := c.send(http.MethodDelete, "/v1/ipam/"+ip.String(), &op)
	if ok && a.Status == http.StatusOK {
		op.Outcome = oracle.Done
	}
	o.endRelease(op)
	c.record(o, op, a, true)
}

// send sends a request, again while no daemon serves or it is stopping, which has no effect but that a release may be
// recorded: the next daemon continues it. It returns false if the outcome is unknown.
func (c *clients) send(method, path string, op *oracle.Op) (harness.Response, bool) {
	var recorded int64 // when a release began that may be
	for ; ; time.Sleep(10 * time.Millisecond) {
		op.Began = c.clock.Add(1)
		a, err := c.client.Try(method, path)
		op.Ended = c.clock.Add(1)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT):
		case err != nil:
			op.Outcome = oracle.Unknown
			return a, false
		case strings.Contains(string(a.Body), "the service is stopping; try again"):
			if recorded == 0 && op.Verb == oracle.Release {
				recorded = op.Began
			}
		case recorded > 0 && a.Status == http.StatusNotFound:
			op.Began, op.Outcome = recorded, oracle.Unknown
			return a, false
		case strings.Contains(string(a.Body), "work in progress continues and is recorded"):
			op.Outcome = oracle.Unknown
			return a, false
		default:
			op.Outcome = oracle.Refused
			return a, true
		}
	}
}

// record records an operation that has ended, and its response if that is not expected.
func (c *clients) record(o *sharedOwner, op oracle.Op, a harness.Response, expected bool) {
	if op.Outcome == oracle.Done && op.Verb != oracle.Release {
		o.recordResponse(op)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops = append(c.ops, op)
	if !expected {
		c.unexpected = append(c.unexpected, fmt.Errorf("%s was answered %s", op, a))
	}
}

// sharedOwner is the knowledge of all clients about one owner.
type sharedOwner struct {
	name string
	mu   sync.Mutex
	// held has the addresses, by family, that it holds regardless of the outcome of pending
	// requests. Only they are released, because a release does not name an owner.
	held [2]netip.Addr
	// releasing means that a release of a family is pending; released is when the last one ended.
	releasing [2]bool
	released  [2]int64
}

// recordResponse records the addresses of an operation. During a release they may be older.
func (o *sharedOwner) recordResponse(op oracle.Op) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ip := range op.IPs {
		if f := oracle.Family(ip); !o.releasing[f] && o.released[f] < op.Began {
			o.held[f] = ip
		}
	}
}

// address returns the address of a family that the owner certainly holds, and begins its release if asked.
func (o *sharedOwner) address(family int, release bool) (netip.Addr, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ip := o.held[family]
	if release && ip.IsValid() {
		o.held[family], o.releasing[family] = netip.Addr{}, true
	}
	return ip, ip.IsValid()
}

func (o *sharedOwner) endRelease(op oracle.Op) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := oracle.Family(op.IPs[0])
	o.releasing[f], o.released[f] = false, op.Ended
}

const (
	clientCount = 64
	ownerCount  = 200
)

//evidence:design/reliability 64 clients concurrently on 200 owners
//evidence:design/reliability Guarantees
func TestConcurrentClients(t *testing.T) {
	runClients(t, sized(t, 300, 20_000), 0, nil)
}

//evidence:design/reliability the same, and the daemon is killed repeatedly
func TestConcurrentClientsAndKills(t *testing.T) {
	operations := sized(t, 900, 20_000)
	runClients(t, operations, max(5, operations/400), func(st *stats, n *harness.Node, s *harness.Daemon) *harness.Daemon {
		s.Kill(t)
		st.kills.Add(1)
		return n.Launch(t)
	})
}

//evidence:design/reliability the same, and one daemon hands over to the next (a rolling update)
func TestConcurrentClientsAndHandover(t *testing.T) {
	runClients(t, sized(t, 800, 20_000)/2, 4, func(_ *stats, n *harness.Node, s *harness.Daemon) *harness.Daemon {
		next := n.Launch(t)
		next.WaitLog(t, "waiting for the state directory")
		s.Stop(t)
		return next
	})
}

// runClients runs clients of a daemon that each event replaces by the next one.
func runClients(t *testing.T, operations, events int, event func(*stats, *harness.Node, *harness.Daemon) *harness.Daemon) {
	t.Parallel()
	st := newStats(t, concurrency)
	st.countCases(t, operations)
	n := fastNode(t)
	s := n.Launch(t)
	s.WaitReady(t)
	s.Release(t, s.AllocateFor(t, "first")...) // opens the files that stay open
	before := openFiles(t, s)

	c := newClients(s.Client, seed(t), ownerCount, operations, events)
	go c.run(clientCount)
	for range c.due {
		s = event(st, n, s)
		s.WaitServing(t)
	}
	c.checkHeld(t, n, s)
	c.allocateAll()
	s.WaitConsistent(t)
	c.check(t, n, s)
	if unanswered := c.count(oracle.Allocate, oracle.Unknown); events == 0 && unanswered > 0 {
		t.Errorf("%d allocates were not answered", unanswered)
	}
	if events == 0 {
		waitClosed(t, s, before)
	}
	last := s.List(t)
	s.Stop(t)
	n.WantJournal(t, last)
}

// fastNode returns a node with the scripted plugin, which is fast, and does not verify held addresses.
func fastNode(t *testing.T) *harness.Node {
	t.Helper()
	n, _ := scriptedNode(t, "host-local")
	n.WriteNetwork(t, "05-cilium", harness.DualStack())
	n.Flags = append(n.Flags, "--enable-ipv6=true", "--verify-interval=1h", "--log-level=warning")
	if size(t) == full {
		n.Program = harness.Failpoints(t) // without the race detector, which the sample uses
	}
	return n
}

// checkHeld waits until no attachment is in transition, and checks the invariants. It must run
// before allocateAll, which would hide an address that was released and is held again.
func (c *clients) checkHeld(t testing.TB, n *harness.Node, s *harness.Daemon) {
	t.Helper()
	harness.Eventually(t, "the recovery", func() error {
		for _, a := range s.List(t) {
			// A plugin of the previous run may still act for it.
			if a.State == "adding" || a.State == "releasing" {
				return fmt.Errorf("%s is still %s: %s", a.ContainerID, a.State, a.LastError)
			}
		}
		return nil
	})
	s.WaitConsistent(t)
	c.checkInvariants(t, n, s)
	released := len(c.finalReleases())
	t.Logf("%d releases were final", released)
	if released == 0 {
		t.Error("no release was final; the test proves nothing")
	}
}

// check fails the test for each response that is not linearizable, and for each violated invariant.
func (c *clients) check(t testing.TB, n *harness.Node, s *harness.Daemon) {
	t.Helper()
	for _, err := range c.unexpected {
		t.Error(err)
	}
	for _, v := range oracle.CheckOps(c.ops) {
		t.Error(v)
	}
	c.checkInvariants(t, n, s)
	for _, verb := range []oracle.Verb{oracle.Allocate, oracle.Restore, oracle.Release} {
		t.Logf("%s: %d done, %d refused, %d without a response", verb,
			c.count(verb, oracle.Done), c.count(verb, oracle.Refused), c.count(verb, oracle.Unknown))
		if c.count(verb, oracle.Done) == 0 {
			t.Errorf("no %s succeeded; the test proves nothing", verb)
		}
	}
}

// count returns the number of operations with an outcome.
func (c *clients) count(verb oracle.Verb, outcome oracle.Outcome) int {
	n := 0
	for _, op := range c.ops {
		if op.Verb == verb && op.Outcome == outcome {
			n++
		}
	}
	return n
}

// checkInvariants checks the addresses that every owner certainly holds, or has certainly released.
func (c *clients) checkInvariants(t testing.TB, n *harness.Node, s *harness.Daemon) {
	t.Helper()
	h := oracle.NewHistory()
	for _, op := range c.finalReleases() {
		h.Released(op.Owner, op.IPs...)
	}
	for _, o := range c.owners {
		for _, ip := range o.held {
			if ip.IsValid() {
				h.Allocated(o.name, ip)
			}
		}
	}
	for _, v := range h.Check(oracle.Snapshot{Stored: n.Leases(t), Listed: harness.Held(s.List(t))}) {
		t.Error(v)
	}
}

// finalReleases returns the successful releases after whose start no request for the address was pending.
func (c *clients) finalReleases() []oracle.Op {
	type part struct {
		owner  string
		family int
	}
	lastRequest := map[part]int64{}
	for _, op := range c.ops {
		for family, requested := range []bool{op.IPv4, op.IPv6} {
			if p := (part{op.Owner, family}); requested {
				lastRequest[p] = max(lastRequest[p], op.Ended)
			}
		}
	}
	var out []oracle.Op
	for _, op := range c.ops {
		if op.Verb == oracle.Release && op.Outcome == oracle.Done && op.Began > lastRequest[part{op.Owner, oracle.Family(op.IPs[0])}] {
			out = append(out, op)
		}
	}
	return out
}
