package benchbridge

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/crdagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// poolPoll is how often a starting agent checks whether the pool has enough addresses
// (newNodeStore).
const poolPoll = 5 * time.Second

// errNoAddress is the failure of an ADD: no address of the pool can be allocated.
var errNoAddress = errors.New("no IPs currently available on the node")

// agent imitates cilium-agent v1.19.0 in ipam mode crd, with the timing of its pkg/ipam/crd.go and
// pkg/trigger: one status update in updateRate, in which it writes the used addresses and its answers
// to handshakes. A conflict is retried after updateRate.
type agent struct {
	node       string
	resource   dynamic.ResourceInterface
	updateRate time.Duration
	refresh    chan struct{}

	mu sync.Mutex
	// own is the CiliumNode that it has seen last, with its answers to handshakes.
	own       *unstructured.Unstructured
	allocated map[string]any
	history   []observation
}

// observation is the content of a CiliumNode when the agent saw it.
type observation struct {
	at time.Time
	// pool is the number of entries of the pool, free of those that can be allocated, and suspended of
	// those with an owner.
	pool, free, suspended int
	// size is its size in bytes.
	size int
}

// newAgent creates the CiliumNode of a name with a spec.ipam, and returns its agent.
func newAgent(t *testing.T, resource dynamic.ResourceInterface, name string, updateRate time.Duration, ipam map[string]any) *agent {
	object := cluster.Object("cilium.io/v2", "CiliumNode", name)
	object.Object["spec"] = map[string]any{"ipam": ipam}
	_, err := resource.Create(t.Context(), object, metav1.CreateOptions{})
	check.Must(t, err)
	return &agent{node: name, resource: resource, updateRate: updateRate, refresh: make(chan struct{}, 1), allocated: map[string]any{}}
}

func (a *agent) run(ctx context.Context, client dynamic.Interface) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, ciliumNodes(), metav1.NamespaceNone, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, a.node).String()
		}).Informer()
	see := func(object any) {
		if o, ok := object.(*unstructured.Unstructured); ok {
			a.observe(o.DeepCopy())
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, object any) { see(object) }})
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	steps := []func() bool{a.startable}
	for _, owner := range []string{"router", "health", "ingress"} {
		steps = append(steps, func() bool { _, err := a.allocate(owner); return err == nil })
	}
	for _, done := range steps {
		if err := wait.PollUntilContextCancel(ctx, poolPoll, true, func(context.Context) (bool, error) { return done(), nil }); err != nil {
			return err
		}
	}
	return a.update(ctx)
}

func (a *agent) startable() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own == nil {
		return false
	}
	required, _, _ := unstructured.NestedInt64(a.own.Object, "spec", "ipam", "min-allocate")
	if required == 0 {
		required, _, _ = unstructured.NestedInt64(a.own.Object, "spec", "ipam", "pre-allocate")
	}
	if required == 0 {
		required = 2 // health checking is enabled
	}
	return len(a.pool()) >= int(required)
}

// update writes the status once in updateRate while there are triggers, until ctx ends.
func (a *agent) update(ctx context.Context) error {
	for {
		select {
		case <-a.refresh:
		case <-ctx.Done():
			return ctx.Err()
		}
		next := time.Now().Add(a.updateRate)
		a.mu.Lock()
		object := a.own.DeepCopy()
		used := maps.Clone(a.allocated)
		a.mu.Unlock()
		err := unstructured.SetNestedMap(object.Object, used, "status", "ipam", "used")
		if err != nil {
			return err
		}
		if _, err := a.resource.UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			a.trigger()
		}
		if err := cluster.Sleep(ctx, time.Until(next)); err != nil {
			return err
		}
	}
}

func (a *agent) trigger() {
	select {
	case a.refresh <- struct{}{}:
	default: // the last trigger is still pending
	}
}

// observe answers the handshakes of a CiliumNode (updateLocalNodeResource).
func (a *agent) observe(object *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own = object
	pool, answered := a.pool(), false
	release := a.release()
	for ip, state := range release {
		_, published := pool[ip]
		_, allocated := a.allocated[ip]
		before, _ := state.(string)
		answer := crdagent.Answer(before, published, allocated)
		if len(pool) == 0 || answer == before {
			continue
		}
		if release[ip], answered = answer, true; answer == "" {
			delete(release, ip)
		}
	}
	text, _ := object.MarshalJSON()
	now := observation{at: time.Now(), pool: len(pool), size: len(text)}
	for ip, entry := range pool {
		if fieldOf(entry, "owner") != "" {
			now.suspended++
		} else if a.allocatable(ip) {
			now.free++
		}
	}
	a.history = append(a.history, now)
	if answered {
		a.trigger()
	}
}

// pool returns spec.ipam.pool, release status.ipam.release-ips. The caller has the lock.
func (a *agent) pool() map[string]any { return nestedMap(a.own, "spec", "ipam", "pool") }

func (a *agent) release() map[string]any { return nestedMap(a.own, "status", "ipam", "release-ips") }

// allocatable reports whether an address is not allocated and not in release. The caller has the
// lock.
func (a *agent) allocatable(ip string) bool {
	_, allocated := a.allocated[ip]
	state, _ := a.release()[ip].(string)
	return !allocated && crdagent.Allocatable(state)
}

func (a *agent) allocate(owner string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ip, entry := range a.pool() {
		if fieldOf(entry, "owner") != "" || !a.allocatable(ip) {
			continue
		}
		a.allocated[ip] = map[string]any{"owner": owner, "resource": fieldOf(entry, "resource")}
		a.trigger()
		return ip, nil
	}
	return "", errNoAddress
}

func (a *agent) free(ip string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.allocated, ip)
	a.trigger()
}

func (a *agent) used() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(nestedMap(a.own, "status", "ipam", "used"))
}

// firstSeen returns when the agent first saw a CiliumNode that meets a condition after a time; zero
// if it has not.
func (a *agent) firstSeen(after time.Time, met func(observation) bool) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.history {
		if o.at.After(after) && met(o) {
			return o.at
		}
	}
	return time.Time{}
}

// last returns the last observation; the zero value if there is none.
func (a *agent) last() observation {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.history) == 0 {
		return observation{}
	}
	return a.history[len(a.history)-1]
}

func nestedMap(object *unstructured.Unstructured, path ...string) map[string]any {
	if object == nil {
		return nil
	}
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
	m, _ := value.(map[string]any)
	return m
}

func fieldOf(entry any, name string) string {
	fields, _ := entry.(map[string]any)
	text, _ := fields[name].(string)
	return text
}
