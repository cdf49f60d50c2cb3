package engine

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// claim identifies an address in a successful response.
type claim struct {
	owner  string
	family attachment.Family
}

// model is the reference model of TestProperties: the state that the responses imply.
type model struct {
	node *fakeNode // its steps are printed with a failure
	held map[claim]netip.Addr
	// used are the addresses that the owners may use: those of their last responses, until they release them.
	used map[claim]netip.Addr
	// uncertain are owners whose last request failed or whose allocation expires: they may
	// hold nothing, or what they held.
	uncertain map[string]bool
	// storeLost: the plugin lost its store, so addresses may have changed.
	storeLost bool
	// slow: calls take time, so what a start acquires again, because it cannot be looked up, may get addresses of another one.
	slow bool
	// taken are addresses that a pod got since, or when their owner could be without them. One of them may
	// be given up, so that its owner gets the other family again.
	taken []netip.Addr
	// forgotten are owners without a request since the journal was lost.
	forgotten map[string]bool
}

func newModel(n *fakeNode) *model {
	return &model{node: n, held: map[claim]netip.Addr{}, used: map[claim]netip.Addr{}, uncertain: map[string]bool{}, forgotten: map[string]bool{}}
}

func (m *model) steps() string { return strings.Join(m.node.steps, "\n") }

func (m *model) allocated(rt *rapid.T, owner string, family attachment.Family, a Attachment, err error) {
	if err != nil {
		m.failed(owner, err)
		return
	}
	for _, f := range a.Claims {
		if family != "" && family != f {
			continue
		}
		now, _ := a.Address(f)
		before, ok := m.held[claim{owner, f}]
		if ok && before != now.Addr() && !m.storeLost && !m.uncertain[owner] && !slices.Contains(m.taken, before) &&
			!(m.slow && m.node.storeHidden && m.node.reboots > 0) {
			rt.Fatalf("%s had %s and now gets %s without a reason\n%s", owner, before, now.Addr(), m.steps())
		}
		m.held[claim{owner, f}] = now.Addr()
		m.use(rt, claim{owner, f}, now.Addr())
	}
	if family != "" && !a.Claimed(family) {
		rt.Fatalf("%s requested %s and got claims %v", owner, family, a.Claims)
	}
	// A family whose address changed is not claimed any more, so no response has the old one.
	maps.DeleteFunc(m.held, func(k claim, ip netip.Addr) bool {
		return k.owner == owner && (!a.Claimed(k.family) || !a.Holds(ip))
	})
	delete(m.uncertain, owner)
	delete(m.forgotten, owner)
	if a.Expiration != nil {
		m.uncertain[owner] = true // it may be released at its deadline
	}
}

// use notes that an owner uses an address from now on, and fails if another one may use it.
func (m *model) use(rt *rapid.T, k claim, ip netip.Addr) {
	for other, used := range m.used {
		switch {
		case other.owner == k.owner && (m.uncertain[k.owner] || m.forgotten[k.owner]):
			delete(m.used, other) // its attachment may be a new one
		case used == ip && other.owner != k.owner && !m.uncertain[other.owner] && !m.forgotten[other.owner]:
			rt.Fatalf("%s got %s, which %s may use\n%s", k.owner, ip, other.owner, m.steps())
		}
	}
	m.used[k] = ip
}

// requested notes a request of an owner, whose answer has what it uses then.
func (m *model) requested(owner string) {
	maps.DeleteFunc(m.used, func(k claim, _ netip.Addr) bool { return k.owner == owner })
}

func (m *model) restored(rt *rapid.T, owner string, ip netip.Addr, err error) {
	if err != nil {
		m.failed(owner, err)
		return
	}
	for k, other := range m.held {
		if other == ip && k.owner != owner && !m.uncertain[k.owner] && !(m.storeLost && m.forgotten[k.owner]) {
			rt.Fatalf("%s was restored for %s, but %s has it", ip, owner, k.owner)
		}
	}
	m.held[claim{owner, attachment.FamilyOf(ip)}] = ip
	m.use(rt, claim{owner, attachment.FamilyOf(ip)}, ip)
	if m.uncertain[owner] || m.forgotten[owner] { // perhaps held, but not claimed before the next request
		delete(m.held, claim{owner, otherFamily(attachment.FamilyOf(ip))})
	}
	delete(m.uncertain, owner)
	delete(m.forgotten, owner)
}

func (m *model) released(ip netip.Addr, err error) {
	known, _ := errors.AsType[*attachment.Error](err)
	for k, held := range m.held {
		switch {
		case held != ip || known != nil && known.Kind == attachment.NotFound:
		case err == nil:
			delete(m.held, k)
		default:
			m.uncertain[k.owner] = true // it may be released, with its other family
		}
	}
	// A client that has requested a release does not use the address any more, also if that failed.
	requested := err == nil || known == nil || known.Kind == attachment.Failed
	maps.DeleteFunc(m.used, func(_ claim, used netip.Addr) bool { return used == ip && requested })
}

// failed notes a failed request, unless it was rejected before it changed anything.
func (m *model) failed(owner string, err error) {
	if known, ok := errors.AsType[*attachment.Error](err); ok && (known.Kind == attachment.Exists || known.Kind == attachment.Forbidden) {
		return
	}
	m.uncertain[owner] = true
}

// checkNoDuplicates fails if an address belongs to two attachments.
func (s *simulation) checkNoDuplicates(rt *rapid.T) {
	owners := map[netip.Addr]string{}
	for _, a := range s.engine.List() {
		if a.State == attachment.Releasing {
			continue // after its DEL another owner may have the address
		}
		for _, ip := range a.Addrs() {
			if other, ok := owners[ip]; ok {
				rt.Fatalf("%s belongs to %s and to %s", ip, other, a.Owner)
			}
			owners[ip] = a.Owner
		}
	}
}

// checkPods fails if a pod has an address that an owner holds, unless the plugin lost its store.
func (s *simulation) checkPods(rt *rapid.T) {
	if s.model.storeLost {
		return
	}
	var pods []netip.Addr
	s.node.with(func(n *fakeNode) { pods = slices.Concat(n.store["pod-1"], n.store["pod-2"]) })
	for _, a := range s.engine.List() {
		for _, ip := range a.Addrs() {
			if a.State == attachment.Held && slices.Contains(pods, ip) {
				rt.Fatalf("%s is held by %s, and a pod has it\n%s", ip, a.Owner, s.model.steps())
			}
		}
	}
}

// checkAtRest compares journal, list and plugin's store with the model when no work is left.
func (s *simulation) checkAtRest(rt *rapid.T) {
	s.checkNoDuplicates(rt)
	s.checkContainers(rt)
	processes := s.engine.pools[client.DefaultPool].processes[ofRuntime][0]
	if all := int64(s.engine.opts.MaxProcesses); processes.TryAcquire(all) {
		processes.Release(all)
	} else {
		rt.Errorf("an operation still holds a plugin process")
	}
	s.node.with(func(n *fakeNode) {
		recorded := s.checkRecords(rt)
		for id, stored := range n.store {
			if !recorded[id] && !isPod(id) {
				rt.Errorf("leak: the plugin holds %v under %s, which the journal does not have\n%s", stored, id, s.model.steps())
			}
		}
		for k, ip := range s.model.held {
			if !s.model.uncertain[k.owner] && !s.model.forgotten[k.owner] && !slices.Contains(s.model.taken, ip) {
				s.checkClaim(rt, k, ip)
			}
		}
	})
}

// checkRecords fails if a record awaits work, and returns the container IDs of held ones.
func (s *simulation) checkRecords(rt *rapid.T) (held map[string]bool) {
	held = map[string]bool{}
	for _, r := range s.node.records {
		switch {
		case r.State == attachment.Held:
			held[r.IDInUse()] = true
			for _, inv := range r.Invocations {
				held[inv.ContainerID] = held[inv.ContainerID] || inv.KeepsLost
			}
		case r.State == attachment.Tombstone, r.State == attachment.Adding && r.InUse():
		default:
			rt.Errorf("the record of %s with claims %v is still %s", r.Owner, r.Claims, r.State)
		}
	}
	return held
}

// checkClaim fails unless an owner has the address of its response.
func (s *simulation) checkClaim(rt *rapid.T, k claim, ip netip.Addr) {
	a, _ := s.engine.Lookup(client.DefaultPool, k.owner)
	if !a.Holds(ip) || !a.Claimed(k.family) {
		rt.Errorf("%s got a response with %s of %s; its record is %+v\n%s", k.owner, ip, k.family, a.Record, s.model.steps())
		return
	}
	if s.node.profile.VerifyBy == profile.VerifyNothing && s.model.storeLost {
		return // the plugin cannot be queried
	}
	inv := attachment.Status{Rec: &a.Record}.LastInvocation()
	if _, stored := s.node.store[inv.ContainerID]; !stored && !a.Lost {
		rt.Errorf("%s is listed as holding %s, but the plugin's store has %v\n%s", k.owner, ip, s.node.store, s.model.steps())
	}
	claimed := slices.DeleteFunc(a.Addrs(), func(ip netip.Addr) bool { return !a.Claimed(attachment.FamilyOf(ip)) })
	if canRequest(inv, claimed) && a.State != attachment.Held {
		rt.Errorf("%s was not reacquired for %s: %s; the plugin holds %v\n%s", ip, k.owner, a.LastError, s.node.store, s.model.steps())
	}
}
