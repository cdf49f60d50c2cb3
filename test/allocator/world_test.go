package allocator

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/cilium/pkg/ipam"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// rangeSize is the number of addresses of the plugin, of each family.
const rangeSize = 20

// world is the node: bridge, agent, daemon, and the CiliumNode at the API server.
type world struct {
	t      *testing.T
	random *rand.Rand
	trace  []string
	// families are those of the node: IPv4, or IPv4 and IPv6.
	families []ipam.Family
	node     *ciliumv2.CiliumNode
	held     map[int][]netip.Addr // slots of the daemon
	// agent is nil while it does not run. pods are the addresses of the endpoints on its disk.
	agent *agent
	pods  map[string][]netip.Addr
	// waiting is the number of pods that have no address yet, started that of all pods so far.
	waiting, started int
	// The settings and the memory of the bridge.
	settings    planner.Settings
	watchesPods bool
	drained     map[netip.Addr]bool
	excess      bool
	exhausted   bool
	batch       int
}

func newWorld(t *testing.T, random *rand.Rand) *world {
	w := &world{
		t: t, random: random, families: []ipam.Family{ipam.IPv4, ipam.IPv6}[:1+random.IntN(2)],
		node: &ciliumv2.CiliumNode{}, held: map[int][]netip.Addr{}, pods: map[string][]netip.Addr{}, drained: map[netip.Addr]bool{},
		settings:    planner.Settings{MinAllocate: random.IntN(6), PreAllocate: 1 + random.IntN(4), MaxAboveWatermark: random.IntN(3), ReleaseExcess: true},
		watchesPods: random.IntN(2) == 0,
	}
	w.node.Name, w.node.ResourceVersion = "node", "1"
	w.node.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
	t.Cleanup(func() {
		if w.agent != nil {
			w.agent.stop()
		}
		if t.Failed() {
			t.Logf("settings %+v, pods watched %v\n%s", w.settings, w.watchesPods, strings.Join(w.trace, "\n"))
		}
	})
	return w
}

func (w *world) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) step() {
	steps := []func(){
		func() { w.reconcile(w.random.IntN(8)) }, func() { w.reconcile(-1) }, func() { w.reconcile(-1) },
		w.addPod, w.addPod, w.addPod, w.deletePod, w.deletePod,
		w.deliver, w.deliver, w.writeStatus, w.writeStatus, w.startAgent, w.restore, w.restore, w.drain,
		func() { w.excess = !w.excess },
		func() { w.batch = w.random.IntN(5) },
		func() { w.exhausted = false },
	}
	if w.random.IntN(3) == 0 {
		steps = append(steps, w.stopAgent, func() { w.settings.MaxPods = []int{0, 4, 8}[w.random.IntN(3)] })
	}
	steps[w.random.IntN(len(steps))]()
}

// change counts a write to the CiliumNode, if it had an effect.
func (w *world) change(write func(*ciliumv2.CiliumNode)) {
	before := w.node.DeepCopy()
	write(w.node)
	if !before.DeepEqual(w.node) {
		version, _ := strconv.Atoi(w.node.ResourceVersion)
		w.node.ResourceVersion = strconv.Itoa(version + 1)
	}
}

func (w *world) published() int {
	slots := map[string]bool{}
	for _, e := range w.node.Spec.IPAM.Pool {
		slots[e.Resource] = true
	}
	return len(slots)
}

func ownAddresses() []string { return []string{"router", "health", "ingress"} }

func (w *world) startAgent() {
	if w.agent != nil || w.published() < len(ownAddresses()) {
		return
	}
	w.log("agent: starts")
	w.agent = startAgent(w.node, len(w.families) > 1)
	unanswered := w.node.DeepCopy()
	maps.DeleteFunc(unanswered.Status.IPAM.ReleaseIPs, func(ip string, _ ipamtypes.IPReleaseStatus) bool {
		_, published := unanswered.Spec.IPAM.Pool[ip]
		return published // it has no allocator yet, which could answer
	})
	if answers(unanswered) {
		w.agent.triggered()
	}
}

func (w *world) stopAgent() {
	if w.agent != nil {
		w.log("agent: is killed")
		w.agent.stop()
		w.agent = nil
	}
}

// restore restores the addresses of the pods, which a restarted agent drops otherwise, and allocates the
// agent's own.
func (w *world) restore() {
	if w.agent == nil || w.agent.restored {
		return
	}
	w.log("agent: restores its endpoints")
	for name, ips := range w.pods {
		for _, ip := range ips {
			if _, err := w.agent.AllocateIPWithoutSyncUpstream(ip, name, ipam.PoolDefault()); err != nil {
				w.t.Fatalf("the agent drops pod %s: %v", name, err)
			}
		}
	}
	for w.agent.pending != nil {
		w.deliver()
		w.writeStatus()
	}
	w.agent.restored = true
	w.agent.RestoreFinished()
	w.agent.triggered()
	for _, family := range w.families {
		for _, owner := range ownAddresses() {
			w.agent.allocate(family, owner)
		}
	}
}

func (w *world) deliver() {
	if w.agent != nil {
		w.agent.deliver(w.node)
	}
}

// writeStatus answers the agent's pending status update. Some fail, and are repeated with the agent's
// present status.
func (w *world) writeStatus() {
	if w.agent == nil || w.agent.pending == nil {
		return
	}
	if w.random.IntN(2) == 0 {
		w.agent.respond(errors.New("the API server is unavailable"))
	}
	update := w.agent.pending.node
	if update.ResourceVersion != w.node.ResourceVersion {
		w.log("agent: conflict of its status")
		w.agent.respond(errors.New("conflict"))
		return
	}
	w.log("agent: writes its status: used %v, handshakes %v", slices.Sorted(maps.Keys(update.Status.IPAM.Used)), update.Status.IPAM.ReleaseIPs)
	w.change(func(n *ciliumv2.CiliumNode) { n.Status = update.Status })
	w.agent.respond(nil)
}

// addPod starts a pod, or gives one that waits its addresses.
func (w *world) addPod() {
	if w.waiting == 0 || w.random.IntN(2) == 0 {
		if len(w.pods)+w.waiting < 8 {
			w.waiting++
		}
		return
	}
	if w.agent == nil || !w.agent.restored {
		return
	}
	name, ips := fmt.Sprint("default/pod-", w.started), []netip.Addr{}
	for _, family := range w.families {
		if ip, ok := w.agent.allocate(family, name); ok {
			ips = append(ips, ip)
		}
	}
	if len(ips) < len(w.families) {
		for _, ip := range ips {
			w.agent.free(ip)
		}
		return
	}
	w.log("%s gets %v", name, ips)
	w.pods[name] = ips
	w.waiting--
	w.started++
}

func (w *world) deletePod() {
	if w.agent == nil || !w.agent.restored || len(w.pods) == 0 {
		return
	}
	name := slices.Sorted(maps.Keys(w.pods))[w.random.IntN(len(w.pods))]
	w.log("%s ends", name)
	for _, ip := range w.pods[name] {
		w.agent.free(ip)
	}
	delete(w.pods, name)
}

// settle lets the agent see the CiliumNode and write its status until nothing changes.
func (w *world) settle() {
	w.restore()
	for w.deliver(); w.agent.pending != nil; w.deliver() {
		w.writeStatus()
	}
}

// drain lets the time of a drain pass, in which a running agent restores its endpoints and writes which
// addresses it uses.
func (w *world) drain() {
	if w.agent == nil {
		return
	}
	w.log("the time of a drain passes")
	w.settle()
	o := w.observed()
	for ip, e := range o.Pool {
		if _, used := o.Used[ip]; e.Suspended() && !used && o.Handshakes[planner.Ping] == planner.DoNotRelease {
			w.drained[ip] = true
		}
	}
}

func (w *world) observed() planner.Observed {
	o := planner.Observed{
		Pool: entries(w.node.Spec.IPAM.Pool), Used: entries(w.node.Status.IPAM.Used), Handshakes: map[netip.Addr]planner.Handshake{},
		Pods: w.waiting + len(w.pods),
	}
	for ip, state := range w.node.Status.IPAM.ReleaseIPs {
		o.Handshakes[netip.MustParseAddr(ip)] = planner.Handshake(state)
	}
	for n, ips := range w.held {
		o.Slots = append(o.Slots, planner.Slot{Number: n, Addresses: ips, Held: true})
	}
	if w.watchesPods {
		o.PodIPs = map[netip.Addr]bool{}
		for _, ip := range slices.Concat(slices.Collect(maps.Values(w.pods))...) {
			o.PodIPs[ip] = true
		}
	}
	return o
}

func entries(all ipamtypes.AllocationMap) map[netip.Addr]planner.Entry {
	out := map[netip.Addr]planner.Entry{}
	for ip, e := range all {
		out[netip.MustParseAddr(ip)] = planner.Entry{Owner: e.Owner, Resource: e.Resource}
	}
	return out
}

func (w *world) remembered(o planner.Observed) planner.Remembered {
	for ip := range w.drained {
		if _, used := o.Used[ip]; used || !o.Pool[ip].Suspended() || o.Handshakes[planner.Ping] != planner.DoNotRelease {
			delete(w.drained, ip) // the drain is interrupted
		}
	}
	r := planner.Remembered{Drained: maps.Clone(w.drained), Exhausted: w.exhausted, Depleted: w.exhausted, Batch: w.batch}
	if w.excess {
		r.Excess = planner.Count(o, r, w.settings).Excess
	}
	return r
}

func (w *world) plan() planner.Plan {
	o := w.observed()
	return planner.New(o, w.remembered(o), w.settings)
}

// reconcile plans once and executes at most that many steps, -1 for all, while the agent acts: then the
// next write is a conflict. It reports whether there was something to do.
func (w *world) reconcile(steps int) bool {
	plan, version := w.plan(), w.node.ResourceVersion
	if steps >= 0 {
		clear(w.drained) // it is killed, and its memory is lost
	}
	step := func(actions ...planner.Action) bool {
		if steps == 0 {
			w.log("bridge: is killed")
			return false
		}
		steps--
		w.log("bridge: %v", actions)
		for _, a := range actions {
			w.execute(a)
		}
		version = w.node.ResourceVersion
		if w.random.IntN(3) == 0 {
			w.deliver()
		}
		if w.random.IntN(6) == 0 {
			w.writeStatus()
		}
		w.check()
		return true
	}
	write := func(batch []planner.Action) bool {
		return len(batch) == 0 || version == w.node.ResourceVersion && step(batch...)
	}
	request := func(batch []planner.Action) bool {
		return !slices.ContainsFunc(batch, func(a planner.Action) bool { return !step(a) })
	}
	_ = write(plan.Unping) && write(plan.Pool) && write(plan.Marks) && request(plan.Restore) && request(plan.Release) &&
		write(plan.Released) && request(plan.Acquire)
	return len(plan.Actions()) > 0
}

func (w *world) execute(a planner.Action) {
	switch a.Kind {
	case planner.Acquire:
		w.acquire(a.Slot)
	case planner.Restore:
		w.t.Fatalf("%v: the daemon has lost nothing", a)
	case planner.Release:
		w.held[a.Slot] = slices.DeleteFunc(slices.Clone(w.held[a.Slot]), func(ip netip.Addr) bool { return slices.Contains(a.IPs, ip) })
		if len(w.held[a.Slot]) == 0 {
			delete(w.held, a.Slot)
		}
	default:
		w.change(func(n *ciliumv2.CiliumNode) {
			for _, ip := range a.IPs {
				write(n, a, ip.String())
			}
		})
	}
}

func write(n *ciliumv2.CiliumNode, a planner.Action, ip string) {
	if n.Status.IPAM.ReleaseIPs == nil {
		n.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{}
	}
	switch a.Kind {
	case planner.Publish, planner.Suspend:
		e := planner.EntryOf(a.Slot, a.Kind == planner.Suspend)
		n.Spec.IPAM.Pool[ip] = ipamtypes.AllocationIP{Owner: e.Owner, Resource: e.Resource}
	case planner.Withdraw:
		delete(n.Spec.IPAM.Pool, ip)
	case planner.MarkForRelease:
		n.Status.IPAM.ReleaseIPs[ip] = ipamtypes.IPReleaseStatus(planner.MarkedForRelease)
	case planner.Unmark:
		delete(n.Status.IPAM.ReleaseIPs, ip)
	case planner.MarkReleased:
		n.Status.IPAM.ReleaseIPs[ip] = ipamtypes.IPReleaseStatus(planner.Released)
	}
}

func (w *world) acquire(slot int) {
	if w.held[slot] != nil {
		return
	}
	var ips []netip.Addr
	for _, first := range []string{"10.0.0.1", "fd00::1"}[:len(w.families)] {
		ip := netip.MustParseAddr(first)
		for n := 0; w.holds(ip); n++ {
			if n == rangeSize {
				w.exhausted = true
				return
			}
			ip = ip.Next()
		}
		ips = append(ips, ip)
	}
	w.held[slot] = ips
}

func (w *world) holds(ip netip.Addr) bool {
	return slices.Contains(slices.Concat(slices.Collect(maps.Values(w.held))...), ip)
}

func (w *world) check() {
	w.t.Helper()
	for ip := range w.node.Spec.IPAM.Pool {
		if !w.holds(netip.MustParseAddr(ip)) {
			w.t.Fatalf("%s is in the pool and not held", ip)
		}
	}
	for name, ips := range w.pods {
		for _, ip := range ips {
			if _, published := w.node.Spec.IPAM.Pool[ip.String()]; !published {
				w.t.Fatalf("%s of pod %s is not in the pool", ip, name)
			}
		}
	}
}

// converge lets all components act until nothing changes, and checks the result.
func (w *world) converge() {
	w.excess, w.batch, w.exhausted = true, 0, false
	for round, changed := 0, true; changed; round++ {
		if round > 200 {
			w.t.Fatalf("does not converge: plan %v, CiliumNode %+v", w.plan().Actions(), w.node.Status.IPAM)
		}
		before, drained := w.node.ResourceVersion, len(w.drained)
		changed = w.reconcile(-1)
		w.startAgent()
		w.drain()
		w.check()
		changed = changed || before != w.node.ResourceVersion || drained != len(w.drained)
	}
	o := w.observed()
	if c := planner.Count(o, w.remembered(o), w.settings); c.Missing > 0 && !w.exhausted || c.Excess > 0 {
		w.t.Errorf("%d slots are missing, %d in excess; want none", c.Missing, c.Excess)
	}
	if len(o.Handshakes) > 0 {
		w.t.Errorf("handshakes are left: %v", o.Handshakes)
	}
	for n, ips := range w.held {
		for _, ip := range ips {
			if e, published := o.Pool[ip]; !published || e.Suspended() {
				w.t.Errorf("%s of slot %d is held, published %v, suspended %v", ip, n, published, e.Suspended())
			}
		}
	}
	want := (len(w.pods) + len(ownAddresses())) * len(w.families)
	if len(o.Used) != want {
		w.t.Errorf("%d addresses are used; want %d", len(o.Used), want)
	}
}
