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
