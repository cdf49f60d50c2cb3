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

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// clients are concurrent clients that share owners and record every operation.
type clients struct {
	client harness.Client
	seed   uint64
	owners []*sharedOwner
	clock  atomic.Int64
	// left counts the operations that have not started.
	left atomic.Int64
	// eventAt has the values of left at which events receives a value. The channel is closed
	// after the last operation.
	eventAt map[int64]bool
	events  chan struct{}

	mu sync.Mutex
	// served is a channel that is closed while a sidecar serves.
	served     chan struct{}
	ops        []oracle.Op
	unexpected []string
}

func newClients(client harness.Client, seed uint64, owners, operations int) *clients {
	c := &clients{client: client, seed: seed, events: make(chan struct{}), served: make(chan struct{})}
	for i := range owners {
		c.owners = append(c.owners, &sharedOwner{name: fmt.Sprintf("owner-%d", i)})
	}
	c.left.Store(int64(operations))
	return c
}

// scheduleEvents draws the times of that many events.
func (c *clients) scheduleEvents(events int) {
	dice := rand.New(rand.NewPCG(c.seed, 0))
	c.eventAt = map[int64]bool{}
	for len(c.eventAt) < events {
		c.eventAt[dice.Int64N(c.left.Load())] = true
	}
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
				if c.eventAt[left] {
					c.events <- struct{}{}
				}
			}
		})
	}
	all.Wait()
	close(c.events)
}

// step does one operation of a random owner.
func (c *clients) step(dice *rand.Rand) {
	o := c.owners[dice.IntN(len(c.owners))]
	switch n := dice.IntN(100); {
	case n < 35:
		if ip, ok := o.beginRelease(dice.IntN(2)); ok {
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
		if ip := others[n].address(f); ip.IsValid() {
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
	if ok && a.Status == http.StatusCreated {
		op.Outcome, op.IPs = oracle.Done, c.addresses(a, op)
	}
	c.record(o, op)
}

func (c *clients) restore(o *sharedOwner, ip netip.Addr) {
	op := oracle.Op{Owner: o.name, Verb: oracle.Restore, IPs: []netip.Addr{ip}}
	a, ok := c.send(http.MethodPost, "/v1/ipam/"+ip.String()+"?owner="+o.name, &op)
	switch {
	case ok && a.Status == http.StatusOK:
		op.Outcome = oracle.Done
	case ok && a.Status != http.StatusConflict && a.Status != http.StatusInternalServerError:
		c.addUnexpected("%s was answered %s", op, a)
	}
	c.record(o, op)
}

func (c *clients) release(o *sharedOwner, ip netip.Addr) {
	op := oracle.Op{Owner: o.name, Verb: oracle.Release, IPs: []netip.Addr{ip}}
	if a, ok := c.send(http.MethodDelete, "/v1/ipam/"+ip.String(), &op); ok && a.Status == http.StatusOK {
		op.Outcome = oracle.Done
	}
	o.endRelease(op)
	c.record(o, op)
}

// send sends a request when a sidecar serves. It returns false without a response, so
// that the outcome is unknown.
func (c *clients) send(method, path string, op *oracle.Op) (harness.Response, bool) {
	for {
		c.mu.Lock()
		serving := c.served
		c.mu.Unlock()
		<-serving
		op.Began = c.clock.Add(1)
		a, err := c.client.Try(method, path)
		op.Ended = c.clock.Add(1)
		if notServed(a, err) {
			continue
		}
		op.Outcome = oracle.Unknown
		if err == nil {
			op.Outcome = oracle.Refused
		}
		return a, err == nil
	}
}

// notServed reports whether the request had no effect: no sidecar served, or it was stopping.
func notServed(a harness.Response, err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) ||
		err == nil && strings.Contains(string(a.Body), "the service is stopping; try again")
}

// addresses parses the response to an allocate: one address of each requested family.
func (c *clients) addresses(a harness.Response, op oracle.Op) []netip.Addr {
	var allocation harness.Allocation
	if err := json.Unmarshal(a.Body, &allocation); err != nil {
		c.addUnexpected("%s was answered %s", op, a)
		return nil
	}
	var ips []netip.Addr
	for text, wanted := range map[string]bool{allocation.Address.IPv4: op.IPv4, allocation.Address.IPv6: op.IPv6} {
		ip, err := netip.ParseAddr(text)
		if wanted != (err == nil) {
			c.addUnexpected("%s was answered %s", op, a)
		}
		if err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// record records an operation that has ended.
func (c *clients) record(o *sharedOwner, op oracle.Op) {
	if op.Outcome == oracle.Done && op.Verb != oracle.Release {
		o.recordResponse(op)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops = append(c.ops, op)
}

func (c *clients) addUnexpected(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unexpected = append(c.unexpected, fmt.Sprintf(format, args...))
}

// setServing makes the clients continue, or wait.
func (c *clients) setServing(serving bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if serving {
		close(c.served)
	} else {
		c.served = make(chan struct{})
	}
}
