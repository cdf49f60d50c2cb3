package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// TestProperties runs random requests, faults, kills, restarts and reboots, and compares the
// responses (model) with the journal and the plugin's store: no address leaks, and none is
// allocated twice.
func TestProperties(t *testing.T) {
	for _, p := range []profile.Profile{
		hostLocal(), pluginProfile("unknown"), pluginProfile("calico-ipam"), pluginProfile("azure-ipam"), pluginProfile("dhcp"),
		checked(), singleUseIDs(), sameAnswer(),
	} {
		t.Run(p.Type, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				var failure any // rapid stops a run by a panic, which must not end the bubble
				synctest.Test(t, func(t *testing.T) {
					defer func() { failure = recover() }()
					s := newSimulation(t, rt, p)
					defer func() { stop(t, s.engine) }()
					rt.Repeat(rapid.StateMachineActions(s))
					s.recover(rt)
					s.checkAtRest(rt)
					s.releaseAll(rt)
				})
				if failure != nil {
					panic(failure)
				}
			})
		})
	}
}

// simulation is an engine on a fake node. Its exported methods are the random actions, and Check
// runs after each of them.
type simulation struct {
	engine *Engine
	t      *testing.T
	node   *fakeNode
	model  *model

	releaseDelay, verifyInterval time.Duration
	excluded                     []netip.Prefix
	boot, warmLeases             int
	backup                       map[string][]netip.Addr // of the plugin's store
	containers                   containers
}

var simulatedOwners = []string{"router", "health", "ingress", "default/a", "default/b"}

func newSimulation(t *testing.T, rt *rapid.T, p profile.Profile) *simulation {
	n := newFakeNode()
	n.profile, n.rangeSize = p, 8
	n.ipv6 = rapid.Bool().Draw(rt, "dual stack")
	n.storeHidden = rapid.Bool().Draw(rt, "store hidden")
	n.callTime = rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(rt, "call time")
	if rapid.Bool().Draw(rt, "depends on nothing") && p.Unique {
		n.profile.Depends = profile.DependsOnNothing
	}
	s := &simulation{
		excluded: drawExcluded(rt),
		t:        t, node: n, model: newModel(n), boot: 1,
		releaseDelay:   rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(rt, "release delay"),
		verifyInterval: rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "verify interval"),
	}
	s.model.slow = n.callTime > 0
	s.warmLeases = drawWarmLeases(rt)
	s.start()
	return s
}

func drawWarmLeases(rt *rapid.T) int { return max(0, rapid.IntRange(-1, 2).Draw(rt, "warm leases")) }

func (s *simulation) start() {
	s.node.logStep("boot", s.boot)
	o := defaultOptions()
	o.ReleaseDelay, o.VerifyInterval, o.BootID = s.releaseDelay, s.verifyInterval, fmt.Sprint("boot", s.boot)
	o.Exclude, o.WarmLeases = s.excluded, s.warmLeases
	s.engine = s.node.start(s.t, o)
}

func drawOwner(rt *rapid.T) string { return rapid.SampledFrom(simulatedOwners).Draw(rt, "owner") }

func drawFamily(rt *rapid.T) attachment.Family {
	return rapid.SampledFrom([]attachment.Family{attachment.IPv4, attachment.IPv6}).Draw(rt, "family")
}

func otherFamily(f attachment.Family) attachment.Family {
	if f == attachment.IPv4 {
		return attachment.IPv6
	}
	return attachment.IPv4
}

func drawAddr(rt *rapid.T, family attachment.Family) netip.Addr {
	return rangeAddr(family, rapid.IntRange(1, 8).Draw(rt, "address"))
}

// drawExcluded returns some of the addresses of the range, often none.
func drawExcluded(rt *rapid.T) []netip.Prefix {
	var all []netip.Prefix
	for range max(0, rapid.IntRange(-2, 2).Draw(rt, "excluded")) {
		ip := drawAddr(rt, drawFamily(rt))
		all = append(all, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return all
}

// Exclude restarts the engine with other excluded addresses.
func (s *simulation) Exclude(rt *rapid.T) {
	stop(s.t, s.engine)
	s.excluded = drawExcluded(rt)
	s.node.logStep("excluded", s.excluded)
	s.start()
}

// excludes reports whether an address is excluded now.
func (s *simulation) excludes(ip netip.Addr) bool {
	return slices.ContainsFunc(s.excluded, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// checkNotExcluded fails if an owner gets an excluded address that was not allocated to it before.
func (s *simulation) checkNotExcluded(rt *rapid.T, now, before Attachment) {
	for _, f := range now.Claims {
		ip, _ := now.Address(f)
		if s.excludes(ip.Addr()) && !(before.Holds(ip.Addr()) && before.Claimed(f)) && !s.model.forgotten[now.Owner] {
			rt.Fatalf("%s had %v and gets %s, which is excluded\n%s", now.Owner, before.Addrs(), ip.Addr(), s.model.steps())
		}
	}
}

func (s *simulation) Allocate(rt *rapid.T) { s.concurrently(s.allocate(rt)) }

func (s *simulation) allocate(rt *rapid.T) drawn {
	r := AllocateRequest{
		Owner:  drawOwner(rt),
		Family: rapid.SampledFrom([]attachment.Family{"", attachment.IPv4, attachment.IPv6}).Draw(rt, "family"),
		Expire: rapid.IntRange(0, 3).Draw(rt, "expire") == 0,
	}
	var before, a Attachment
	var err error
	return drawn{
		of: r.Owner,
		begin: func() {
			s.model.requested(r.Owner)
			before, _ = s.engine.Lookup(client.DefaultPool, r.Owner)
		},
		send: func() { a, err = s.engine.Allocate(context.Background(), r) },
		end: func() {
			s.node.logStep("allocate", r.Owner, r.Family, a.Addrs(), a.Claims, err)
			s.checkNotExcluded(rt, a, before)
			s.model.allocated(rt, r.Owner, r.Family, a, err)
		},
	}
}

// Burst makes several requests concurrently.
func (s *simulation) Burst(rt *rapid.T) {
	var all []drawn
	for range rapid.IntRange(2, 4).Draw(rt, "requests") {
		draw := []func(*rapid.T) drawn{s.allocate, s.addContainer, s.delContainer, s.collectGarbage}[rapid.IntRange(0, 3).Draw(rt, "request")]
		if r := draw(rt); !slices.ContainsFunc(all, func(o drawn) bool { return o.of == r.of }) {
			all = append(all, r)
		}
	}
	s.concurrently(all...)
}

// drawn is a request of an owner or of a container: what precedes it, itself, and what follows from its answer.
type drawn struct {
	of               string
	begin, send, end func()
}

func (s *simulation) concurrently(all ...drawn) {
	var sent sync.WaitGroup
	for _, r := range all {
		r.begin()
	}
	for _, r := range all {
		sent.Go(r.send)
	}
	sent.Wait()
	for _, r := range all {
		r.end()
	}
}

func (s *simulation) Restore(rt *rapid.T) {
	s.restore(rt, drawOwner(rt), drawAddr(rt, drawFamily(rt)), netip.Addr{})
}

// RestoreBoth restores the addresses that an owner had, as an agent does after its start: one
// after the other, each with the other.
func (s *simulation) RestoreBoth(rt *rapid.T) {
	owner, ips := drawOwner(rt), []netip.Addr{drawAddr(rt, attachment.IPv4), drawAddr(rt, attachment.IPv6)}
	for i, f := range []attachment.Family{attachment.IPv4, attachment.IPv6} {
		if had, ok := s.model.held[claim{owner, f}]; ok {
			ips[i] = had
		}
	}
	if rapid.Bool().Draw(rt, "IPv6 first") {
		slices.Reverse(ips)
	}
	before, both := s.free(owner, ips), true
	for i, ip := range ips {
		both = s.restore(rt, owner, ip, ips[1-i]) && both
	}
	if before && !both {
		rt.Fatalf("%s did not get %v, which were free\n%s", owner, ips, s.model.steps())
	}
}

// free reports whether the plugin can give exactly these addresses to an owner without an
// attachment, and nothing goes wrong.
func (s *simulation) free(owner string, ips []netip.Addr) (free bool) {
	if _, ok := s.engine.Lookup(client.DefaultPool, owner); ok || !s.node.ipv6 || s.warmLeases > 0 {
		return false
	}
	for _, ip := range ips {
		if _, taken := s.engine.holder(client.DefaultPool, "", ip); taken || s.excludes(ip) {
			return false
		}
	}
	s.node.with(func(n *fakeNode) {
		own := containerid.For(owner, "node1", n.networks[client.DefaultPool])
		free = n.fault == nil && n.networkErr == nil && n.pluginErr == nil && !n.killed && canRequest(call.Invocation{Profile: n.profile}, ips)
		for id, stored := range n.store {
			wanted := func(ip netip.Addr) bool { return slices.Contains(ips, ip) }
			if id == own { // what it has is adopted
				free = free && !slices.ContainsFunc(stored, func(ip netip.Addr) bool { return !wanted(ip) })
			} else {
				free = free && !slices.ContainsFunc(stored, wanted)
			}
		}
	})
	return free
}

// restore restores an address, and reports whether the owner has it.
func (s *simulation) restore(rt *rapid.T, owner string, ip, also netip.Addr) bool {
	before, _ := s.engine.Lookup(client.DefaultPool, owner)
	_, err := s.engine.Restore(context.Background(), RestoreRequest{Owner: owner, IP: ip, Also: also})
	s.node.logStep("restore", owner, ip, also, err)
	after, _ := s.engine.Lookup(client.DefaultPool, owner)
	s.checkNotExcluded(rt, after, before)
	s.model.restored(rt, owner, ip, err)
	other := otherFamily(attachment.FamilyOf(ip))
	if a, ok := s.engine.Lookup(client.DefaultPool, owner); ok && s.model.storeLost && !a.Claimed(other) {
		// The attachment was lost with the store and acquired again for this address. The other
		// family changed and is not claimed any more, so no response has the old one.
		delete(s.model.held, claim{owner, other})
	}
	return err == nil
}

func (s *simulation) Release(rt *rapid.T) {
	ip := drawAddr(rt, drawFamily(rt))
	_, err := s.engine.Release(context.Background(), ReleaseRequest{IP: ip, User: ordinary(1000)})
	s.node.logStep("release", ip, err)
	s.model.released(ip, err)
}

// Fault injects one fault at one of the next occurrences of a step.
func (s *simulation) Fault(rt *rapid.T) {
	step := rapid.SampledFrom([]string{
		"write adding", "write held", "write releasing", "write cooldown", "write tombstone", "remove", "ADD", "DEL", "CHECK",
	}).Draw(rt, "step")
	p := s.node.profile
	faults := []fault{refused, outage, notStarted, timeoutBefore, timeoutAfter, errorAfter}
	if (step == "ADD" || step == "DEL") && p.AddOutlivesSeconds > 100 {
		faults = append(faults, timeoutLate)
	}
	if step == "DEL" && p.SingleUseIDs() {
		faults = append(faults, delQueued)
	}
	if step == "CHECK" {
		faults = append(faults, saysLost)
	}
	if strings.HasPrefix(step, "write") || step == "remove" {
		faults = []fault{writeFailed, writeUnknown}
	}
	faults = append(faults, killBefore, killAfter)
	injected := nth(rapid.IntRange(1, 3).Draw(rt, "nth"), step, rapid.SampledFrom(faults).Draw(rt, "fault"))
	s.node.with(func(n *fakeNode) { n.fault = injected })
}

func (s *simulation) RenameNetwork(rt *rapid.T) {
	if len(s.model.forgotten) > 0 {
		return // an ID of another network would not be found again
	}
	name := rapid.SampledFrom([]string{"net", "net2"}).Draw(rt, "name")
	s.node.with(func(n *fakeNode) { n.networks[client.DefaultPool] = name })
}

// Pod allocates an address to a pod, which the plugin serves too, or releases it.
func (s *simulation) Pod(rt *rapid.T) {
	pod := rapid.SampledFrom([]string{"pod-1", "pod-2"}).Draw(rt, "pod")
	s.node.with(func(n *fakeNode) {
		if _, ok := n.store[pod]; ok {
			delete(n.store, pod)
			return
		}
		got, err := n.allocate(call.Call{Invocation: call.Invocation{ContainerID: pod}})
		n.steps = append(n.steps, fmt.Sprint("-- ", pod, got, err))
		// Without a lookup a start releases and acquires again what was held before a reboot.
		if s.model.storeLost || n.storeHidden && n.reboots > 0 {
			s.model.taken = append(s.model.taken, got...)
		}
	})
}

// Configuration makes the configuration unreadable, or the plugin's executable missing, or repairs both.
func (s *simulation) Configuration(rt *rapid.T) {
	broken := rapid.SampledFrom([]string{"", "", "network", "plugin"}).Draw(rt, "broken")
	s.node.logStep("broken", broken)
	s.node.with(func(n *fakeNode) { n.breakConfiguration(broken) })
}

func (n *fakeNode) breakConfiguration(what string) {
	n.networkErr, n.pluginErr = nil, nil
	switch what {
	case "network":
		n.networkErr = errors.New("the configuration cannot be read")
	case "plugin":
		n.pluginErr = errors.New("no executable")
	}
}

func (s *simulation) LoseJournal(*rapid.T) {
	if s.node.profile.Type != "host-local" {
		return // other plugins lose something then: docs/design/how-it-works.md, Known limits
	}
	s.node.kill(s.t, s.engine)
	s.node.logStep("the journal is lost")
	s.endContainers()
	s.node.with(func(n *fakeNode) {
		clear(n.records)
		found := map[string]bool{} // the IDs that the owners' next requests find
		for _, owner := range simulatedOwners {
			id := containerid.For(owner, "node1", n.networks[client.DefaultPool])
			found[id] = true
			s.model.forgotten[owner] = true
			// Without a lookup, or if it was held in an earlier network, the address may change.
			if _, stored := n.store[id]; n.storeHidden || !stored {
				s.model.uncertain[owner] = true
			}
		}
		for id := range n.store { // an operator removes the others
			if !found[id] && !isPod(id) {
				delete(n.store, id)
			}
		}
	})
	s.start()
}

// ClockAhead makes the clock of the previous run one that was ahead.
func (s *simulation) ClockAhead(*rapid.T) {
	s.node.kill(s.t, s.engine)
	s.node.shiftTimes(365 * 24 * time.Hour)
	s.start()
}

func (s *simulation) BackUpStore(*rapid.T) {
	s.node.with(func(n *fakeNode) { s.backup = maps.Clone(n.store) })
}

func (s *simulation) Wait(*rapid.T) { time.Sleep(2 * time.Minute) }

func (s *simulation) Restart(*rapid.T) { stop(s.t, s.engine); s.start() }

// WarmLeases restarts the engine with another number of them.
func (s *simulation) WarmLeases(rt *rapid.T) {
	s.warmLeases = drawWarmLeases(rt)
	s.node.logStep("warm leases", s.warmLeases)
	s.Restart(rt)
}

func (s *simulation) Kill(*rapid.T) { s.node.kill(s.t, s.engine); s.start() }

func (s *simulation) Reboot(rt *rapid.T) {
	s.node.kill(s.t, s.engine)
	s.boot++
	s.endContainers()
	store := rapid.SampledFrom([]string{"survives", "is lost", "is restored from the backup"}).Draw(rt, "store")
	s.node.with(func(n *fakeNode) {
		n.reboots++
		switch store {
		case "is lost":
			n.store, s.model.storeLost = map[string][]netip.Addr{}, true
		case "is restored from the backup":
			n.store, s.model.storeLost = n.recordedOnly(s.backup), true
		}
	})
	s.start()
}

// recordedOnly omits from a backup what was released since: no journal can know that the backup
// has brought it back (docs/design/how-it-works.md, Known limits). Other addresses of a container are for the daemon
// those of an ADD without it.
func (n *fakeNode) recordedOnly(backup map[string][]netip.Addr) map[string][]netip.Addr {
	store := map[string][]netip.Addr{}
	for _, r := range n.records {
		for _, inv := range r.Invocations {
			if held, ok := backup[inv.ContainerID]; ok && (!attachment.OfContainer(r.Owner) || slices.Equal(held, r.Addrs())) {
				store[inv.ContainerID] = held
			}
		}
	}
	return store
}

// Check restarts a killed engine and checks what always holds.
func (s *simulation) Check(rt *rapid.T) {
	killed := false
	s.node.with(func(n *fakeNode) { killed = n.killed })
	if killed {
		s.Kill(rt)
	}
	s.checkNoDuplicates(rt)
	s.checkPods(rt)
}

// recover lets the engine work for a day without faults. Owners of a lost journal then make a
// request, because only that finds what they hold.
func (s *simulation) recover(rt *rapid.T) {
	s.node.with(func(n *fakeNode) {
		n.fault, n.callTime = nil, 0
		n.breakConfiguration("")
		if s.model.storeLost { // a pod may have got a lost address, which prevents its reacquisition
			delete(n.store, "pod-1")
			delete(n.store, "pod-2")
		}
	})
	s.Restart(rt)
	time.Sleep(24 * time.Hour)
	synctest.Wait()
	for owner := range maps.Clone(s.model.forgotten) {
		a, err := s.engine.Allocate(context.Background(), AllocateRequest{Owner: owner})
		s.model.allocated(rt, owner, "", a, err)
	}
	synctest.Wait()
}

// releaseAll releases everything. Then every address that an attachment had must be free, also
// an address that a plugin allocated twice.
func (s *simulation) releaseAll(rt *rapid.T) {
	s.warmLeases = 0
	s.Restart(rt)
	for _, a := range s.engine.List() {
		if attachment.OfContainer(a.Owner) {
			if _, err := s.engine.DelContainer(context.Background(), a.Network, containerWith(attachment.RuntimeID(a.Owner))); err != nil {
				rt.Errorf("delete %s: %v", a.Owner, err)
			}
			continue
		}
		ips := slices.Clip(a.GivenUp)
		for _, family := range a.Claims {
			held, _ := a.Address(family)
			ips = append(ips, held.Addr())
		}
		for _, ip := range ips {
			if _, err := s.engine.Release(context.Background(), ReleaseRequest{IP: ip, User: ordinary(1000)}); err != nil {
				rt.Errorf("release %s of %s: %v", ip, a.Owner, err)
			}
		}
	}
	time.Sleep(24 * time.Hour)
	synctest.Wait()
	list := s.engine.List()
	s.node.with(func(n *fakeNode) {
		maps.DeleteFunc(n.store, func(id string, _ []netip.Addr) bool { return isPod(id) })
		if len(list) != 0 || len(n.store) != 0 || len(n.records) != 0 {
			rt.Errorf("after everything was released the list is %+v, the journal %+v, and the plugin holds %v\n%s", list, n.records, n.store, s.model.steps())
		}
	})
}

func isPod(containerID string) bool { return strings.HasPrefix(containerID, "pod-") }

// containers are what a container runtime knows in TestProperties.
type containers struct {
	made int
	// running are the IDs of containers whose ADD succeeded, and ended others that it has used.
	running, ended []string
}

// containerWith returns a container of one of ten pods of a StatefulSet.
func containerWith(id string) call.Container {
	return call.Container{Attachment: call.Attachment{ContainerID: id, IfName: "eth0"}, Args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-" + id[len(id)-1:]}
}

func (s *simulation) network() (name string) {
	s.node.with(func(n *fakeNode) { name = n.networks[client.DefaultPool] })
	return name
}

// AddContainer adds a new container, or one again that runs or has ended.
func (s *simulation) AddContainer(rt *rapid.T) { s.concurrently(s.addContainer(rt)) }

// DelContainer deletes a container, one that has ended before, or one that was never added.
func (s *simulation) DelContainer(rt *rapid.T) { s.concurrently(s.delContainer(rt)) }

// addContainer adds none whose DEL is queued: the DEL would release its address, as without the daemon.
func (s *simulation) addContainer(rt *rapid.T) drawn {
	var id string
	if used := slices.Concat(s.containers.running, s.containers.ended); len(used) > 0 && rapid.Bool().Draw(rt, "repeated") {
		id = rapid.SampledFrom(used).Draw(rt, "container")
	} else {
		s.containers.made++
		id = fmt.Sprint("container-", s.containers.made)
	}
	owner, network := attachment.ContainerOwner(id, "eth0"), s.network()
	var before, a Attachment
	var err error
	begin := func() {
		s.node.with(func(n *fakeNode) {
			if n.fault != nil { // a CHECK may report a loss wrongly, and then another address comes
				s.model.uncertain[owner] = true
			}
		})
		s.model.requested(owner)
		before, _ = s.engine.Lookup(client.DefaultPool, owner)
	}
	end := func() {
		s.node.logStep("add", id, a.Addrs(), err)
		s.checkNotExcluded(rt, a, before)
		s.model.allocated(rt, owner, "", a, err)
		switch known := slices.Contains(s.containers.running, id); {
		case err == nil && len(a.LastResult()) == 0:
			rt.Fatalf("%s was added without a result", id)
		case err == nil && !known:
			s.containers.running = append(s.containers.running, id)
			s.containers.ended = slices.DeleteFunc(s.containers.ended, func(e string) bool { return e == id })
		case err != nil && !known:
			s.containers.ended = append(s.containers.ended, id)
			s.forgetContainer(id)
		}
	}
	queued := false
	s.node.with(func(n *fakeNode) { queued = n.queued[id] })
	if queued {
		return s.delContainer(rt)
	}
	return drawn{id, begin, func() { a, err = s.engine.AddContainer(context.Background(), network, containerWith(id)) }, end}
}

func (s *simulation) delContainer(rt *rapid.T) drawn {
	all := slices.Concat([]string{"container-unknown"}, s.containers.running, s.containers.ended)
	id, network := rapid.SampledFrom(all).Draw(rt, "container"), s.network()
	var err error
	begin := func() {
		s.containers.running = slices.DeleteFunc(s.containers.running, func(r string) bool { return r == id })
		s.forgetContainer(id)
	}
	end := func() {
		s.node.logStep("delete", id, err)
		s.containers.ended = append(s.containers.ended, id)
	}
	return drawn{id, begin, func() { _, err = s.engine.DelContainer(context.Background(), network, containerWith(id)) }, end}
}

// CollectGarbage names the running containers and the pods that use the plugin without the daemon.
func (s *simulation) CollectGarbage(rt *rapid.T) { s.concurrently(s.collectGarbage(rt)) }

func (s *simulation) collectGarbage(*rapid.T) drawn {
	var valid []call.Attachment
	for _, id := range append([]string{"pod-1", "pod-2"}, s.containers.running...) {
		valid = append(valid, containerWith(id).Attachment)
	}
	var err error
	send := func() {
		if len(s.model.forgotten) == 0 { // otherwise the plugin would release what the owners will find
			err = s.engine.GC(context.Background(), s.network(), valid)
		}
	}
	return drawn{"GC", func() {}, send, func() { s.node.logStep("GC", valid, err) }}
}

// forgetContainer notes that a container no longer uses its addresses.
func (s *simulation) forgetContainer(id string) {
	owner := attachment.ContainerOwner(id, "eth0")
	maps.DeleteFunc(s.model.held, func(k claim, _ netip.Addr) bool { return k.owner == owner })
	s.model.requested(owner)
	delete(s.model.uncertain, owner)
}

// endContainers ends all containers without a DEL.
func (s *simulation) endContainers() {
	for _, id := range s.containers.running {
		s.forgetContainer(id)
	}
	s.containers = containers{made: s.containers.made}
}

// checkContainers fails if the container of a record ended with an earlier boot.
func (s *simulation) checkContainers(rt *rapid.T) {
	known := slices.Concat(s.containers.running, s.containers.ended)
	for _, a := range s.engine.List() {
		if attachment.OfContainer(a.Owner) && !slices.Contains(known, attachment.RuntimeID(a.Owner)) {
			rt.Errorf("%s is %s, and its container ended with an earlier boot", a.Owner, a.State)
		}
	}
}
