package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
)

// world is a sidecar, an API server and an agent in memory, and what was done to
// them. It is used under testing/synctest only.
type world struct {
	mu sync.Mutex
	// node is nil if there is none; version is that of its last change.
	node    *ciliumNode
	version int
	// stale is what the informer has; nil for nothing.
	stale *ciliumNode
	wake  chan struct{}
	// apiErr and sidecarErr are what every request ends with; writeErr is what a write
	// of the CiliumNode ends with, tryErr one that is only tried, and askErr a request
	// for an address.
	apiErr, sidecarErr, writeErr, tryErr, askErr error
	// beforeGet is what somebody else does before the next read of the CiliumNode.
	beforeGet func()
	// conflicts is how many patches still meet somebody else's write.
	conflicts int
	// silent is an agent that does not answer.
	silent bool

	held map[int]netip.Addr
	size int
	// refuses are addresses that cannot be restored; deaf says yes and does nothing.
	refuses map[netip.Addr]bool
	deaf    bool

	// lists are all requests to the sidecar that change nothing.
	gets, patches, lists, acquires, restores int
	events                                   []string
	// unheld are the addresses that were published while nobody held them.
	unheld []string
}

func ip(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

func newWorld() *world {
	w := &world{wake: make(chan struct{}, 1), held: map[int]netip.Addr{}, size: 100, refuses: map[netip.Addr]bool{}}
	w.create("uid-1")
	return w
}

// create makes the CiliumNode, or another one of its name.
func (w *world) create(uid types.UID) {
	w.node = &ciliumNode{}
	w.node.Metadata.Name, w.node.Metadata.UID = "worker", uid
	w.node.Spec.IPAM.Pool = map[string]allocationIP{}
	w.node.Status.IPAM.Used = map[string]allocationIP{}
	w.node.Status.IPAM.ReleaseIPs = map[string]planner.Handshake{}
	w.changed()
}

func (w *world) changed() {
	w.version++
	if w.node != nil {
		w.node.Metadata.ResourceVersion = strconv.Itoa(w.version)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// change lets somebody else change things.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.changed()
}

// use makes the agent use published addresses, and no others.
func (w *world) use(ips ...netip.Addr) {
	w.change(func() {
		used := map[string]allocationIP{}
		for _, ip := range ips {
			used[ip.String()] = allocationIP{Owner: "default/pod", Resource: w.node.Spec.IPAM.Pool[ip.String()].Resource}
		}
		w.node.Status.IPAM.Used = used
	})
}

func (w *world) copy(n *ciliumNode) *ciliumNode {
	out := *n
	out.Spec.IPAM.Pool = maps.Clone(n.Spec.IPAM.Pool)
	out.Status.IPAM.Used = maps.Clone(n.Status.IPAM.Used)
	out.Status.IPAM.ReleaseIPs = maps.Clone(n.Status.IPAM.ReleaseIPs)
	return &out
}

func (w *world) cached() *ciliumNode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stale
}

func (w *world) get(context.Context) (*ciliumNode, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gets++
	if w.beforeGet != nil {
		w.beforeGet()
		w.beforeGet = nil
		w.changed()
	}
	if w.apiErr != nil {
		return nil, w.apiErr
	}
	if w.node == nil {
		return nil, apierrors.NewNotFound(ciliumNodes().GroupResource(), "worker")
	}
	return w.copy(w.node), nil
}

func (w *world) checkWriteAccess(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.apiErr, w.tryErr)
}

func (w *world) patch(_ context.Context, p patch) (*ciliumNode, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patches++
	if err := cmp.Or(w.apiErr, w.writeErr); err != nil {
		return nil, err
	}
	if w.conflicts > 0 {
		w.conflicts--
		w.changed()
	}
	if p.version != w.node.Metadata.ResourceVersion {
		return nil, apierrors.NewConflict(ciliumNodes().GroupResource(), "worker", errors.New("modified"))
	}
	for key, value := range p.entries {
		w.write(p.target, key, value)
	}
	w.changed()
	return w.copy(w.node), nil
}

// write does one entry of a patch, and lets the agent answer a mark.
func (w *world) write(of target, key string, value any) {
	_, used := w.node.Status.IPAM.Used[key]
	_, published := w.node.Spec.IPAM.Pool[key]
	switch v := value.(type) {
	case map[string]any:
		owner, _ := v["owner"].(string)
		if !slices.ContainsFunc(slices.Collect(maps.Values(w.held)), func(held netip.Addr) bool { return held.String() == key }) {
			w.unheld = append(w.unheld, key)
		}
		w.node.Spec.IPAM.Pool[key] = allocationIP{Owner: owner, Resource: v["resource"].(string)}
	case planner.Handshake:
		switch {
		case v == planner.Released:
			delete(w.node.Status.IPAM.ReleaseIPs, key)
		case w.silent:
			w.node.Status.IPAM.ReleaseIPs[key] = v
		case used || !published:
			w.node.Status.IPAM.ReleaseIPs[key] = planner.DoNotRelease
		default:
			w.node.Status.IPAM.ReleaseIPs[key] = planner.Ready
		}
	default:
		if of == targetStatus {
			delete(w.node.Status.IPAM.ReleaseIPs, key)
			return
		}
		delete(w.node.Spec.IPAM.Pool, key)
	}
}

func (w *world) checkNode(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	return w.sidecarErr
}

func (w *world) slots(context.Context) ([]planner.Slot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	var slots []planner.Slot
	for n, ip := range w.held {
		slots = append(slots, planner.Slot{Number: n, Addresses: []netip.Addr{ip}, Held: true})
	}
	return slots, w.sidecarErr
}

func (w *world) acquire(_ context.Context, slot int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acquires++
	if err := cmp.Or(w.sidecarErr, w.askErr); err != nil {
		return err
	}
	if w.deaf {
		return nil
	}
	for n := 1; n <= w.size; n++ {
		if !slices.Contains(slices.Collect(maps.Values(w.held)), ip(n)) && !w.refuses[ip(n)] {
			w.held[slot] = ip(n)
			return nil
		}
	}
	return fmt.Errorf("%w: no more", errExhausted)
}

func (w *world) restore(_ context.Context, slot int, ip netip.Addr) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restores++
	if w.askErr != nil {
		return w.askErr
	}
	if w.refuses[ip] {
		return fmt.Errorf("%w: another has it", errRefused)
	}
	w.held[slot] = ip
	return nil
}

func (w *world) release(_ context.Context, ip netip.Addr) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.held, func(_ int, held netip.Addr) bool { return held == ip })
	return nil
}

// Event is the recorder's.
func (w *world) Event(_ runtime.Object, _, reason, _ string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, reason)
}

// pool returns what is published, in order, with a * behind what is fenced.
func (w *world) pool() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.node == nil {
		return nil
	}
	var out []string
	for key, e := range w.node.Spec.IPAM.Pool {
		if e.entry().Cordoned() {
			key += "*"
		}
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// told returns the reasons of the Events so far.
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// counted returns a count, which is one of the world's.
func (w *world) counted(count *int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *count
}

const restDelay = 3 * time.Minute

// play runs a bridge in the world, in simulated time.
func play(t *testing.T, w *world, s planner.Settings, script func(t *testing.T, m *metrics)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)
		m := newMetrics()
		// What is made outside the bubble wakes nobody inside it.
		wake := make(chan struct{}, 1)
		w.mu.Lock()
		w.wake = wake
		w.mu.Unlock()
		c := &controller{
			log: log, node: w, allocator: w, settings: s, state: newState(restDelay),
			conditions: newConditions(log, w, &corev1.ObjectReference{}), metrics: m, wake: wake,
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(ctx)
		}()
		synctest.Wait()
		script(t, m)
		cancel()
		<-done
	})
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// few are settings with which little is going on.
func few() planner.Settings {
	return planner.Settings{MinAllocate: 3, PreAllocate: 1, ReleaseExcess: true}
}

// rested lets all excess of the beginning go back.
func rested(t *testing.T, w *world) {
	t.Helper()
	pass(10 * restDelay)
	if got, want := w.pool(), []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}; !slices.Equal(got, want) {
		t.Fatalf("the pool is %v at rest; want %v", got, want)
	}
}
