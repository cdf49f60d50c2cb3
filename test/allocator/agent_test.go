package allocator

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	_ "unsafe" // for go:linkname

	"github.com/cilium/cilium/pkg/ipam"
	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/k8s/client"
	typedv2 "github.com/cilium/cilium/pkg/k8s/client/clientset/versioned/typed/cilium.io/v2"
	"github.com/cilium/cilium/pkg/option"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/crdagent"
)

// initNodeStore creates the store of the allocators once for each process. A restarted agent is another
// process.
//
//go:linkname initNodeStore github.com/cilium/cilium/pkg/ipam.initNodeStore
var initNodeStore sync.Once

// agent is the part of one process of cilium-agent that allocates addresses. Its requests are in the
// order of the test: each event is processed, and each status update has been sent, when a method
// returns.
type agent struct {
	*ipam.IPAM
	// restored reports whether it has restored the addresses of its endpoints.
	restored bool
	// seen is the CiliumNode of the last event.
	seen   *ciliumv2.CiliumNode
	events *watch.FakeWatcher
	// processed has a value for each event that was processed.
	processed chan struct{}
	// updates are its status updates, pending is the one without a response, nil for none. again reports
	// whether another one follows that.
	updates chan statusUpdate
	pending *statusUpdate
	again   bool
	ended   chan struct{}
}

type statusUpdate struct {
	node     *ciliumv2.CiliumNode
	response chan error
}

// startAgent starts an agent, which responds to the marks of a CiliumNode whose pool has enough
// addresses, before it restores the addresses of its endpoints.
func startAgent(node *ciliumv2.CiliumNode, dual bool) *agent {
	a := &agent{
		seen: node.DeepCopy(), events: watch.NewFake(), processed: make(chan struct{}),
		updates: make(chan statusUpdate), ended: make(chan struct{}),
	}
	initNodeStore, wait.NeverStop = sync.Once{}, a.ended
	a.IPAM = ipam.NewIPAM(ipam.NewIPAMParams{
		Logger:        slog.New(slog.NewTextHandler(io.Discard, nil)),
		AgentConfig:   &option.DaemonConfig{IPAM: ipamoption.IPAMCRD, EnableIPv4: true, EnableIPv6: dual, EnableHealthChecking: true},
		NodeDiscovery: a, K8sEventReg: a, Clientset: clientset{agent: a},
	})
	configured := make(chan struct{})
	go func() {
		a.ConfigureAllocator()
		close(configured)
	}()
	<-a.processed
	<-configured
	return a
}

func (a *agent) stop() { close(a.ended) }

// deliver sends the CiliumNode to the agent if it has changed, and returns when the agent has
// processed it.
func (a *agent) deliver(node *ciliumv2.CiliumNode) {
	if node.ResourceVersion == a.seen.ResourceVersion {
		return
	}
	answers := !a.seen.DeepEqual(node) && answers(node)
	a.seen = node.DeepCopy()
	a.events.Modify(node.DeepCopy())
	<-a.processed
	if answers {
		a.triggered()
	}
}

// answers reports whether the agent answers a handshake of a CiliumNode (updateLocalNodeResource).
func answers(node *ciliumv2.CiliumNode) bool {
	for ip, state := range node.Status.IPAM.ReleaseIPs {
		_, published := node.Spec.IPAM.Pool[ip]
		if node.Spec.IPAM.Pool != nil && crdagent.Answer(state, published, false) != state {
			return true
		}
	}
	return false
}

// triggered is called after each change that the agent writes to its status: it waits for the request.
func (a *agent) triggered() {
	if a.pending != nil {
		a.again = true
		return
	}
	u := <-a.updates
	a.pending = &u
}

func (a *agent) respond(err error) {
	response, again := a.pending.response, a.again || err != nil
	a.pending, a.again = nil, false
	response <- err
	if again {
		a.triggered()
	}
}

func (a *agent) allocate(family ipam.Family, owner string) (netip.Addr, bool) {
	result, err := a.AllocateNextFamily(family, owner, ipam.PoolDefault())
	if err != nil {
		return netip.Addr{}, false
	}
	a.triggered()
	return result.IP, true
}

func (a *agent) free(ip netip.Addr) {
	_ = a.ReleaseIP(ip, ipam.PoolDefault()) // it fails for a wrong argument only
	a.triggered()
}

func (a *agent) UpdateCiliumNodeResource() {}

// K8sEventReceived implements ipam.K8sEventRegister. It is called after an event was processed.
func (a *agent) K8sEventReceived(string, string, string, bool, bool) {
	select {
	case a.processed <- struct{}{}:
	case <-a.ended:
	}
}

func (a *agent) K8sEventProcessed(string, string, bool) {}

// clientset is the API server as the agent sees it: the requests that it does not use are nil.
type clientset struct {
	client.Clientset
	agent *agent
}

func (c clientset) CiliumV2() typedv2.CiliumV2Interface { return ciliumV2{agent: c.agent} }

type ciliumV2 struct {
	typedv2.CiliumV2Interface
	agent *agent
}

func (c ciliumV2) CiliumNodes() typedv2.CiliumNodeInterface { return ciliumNodes{agent: c.agent} }

type ciliumNodes struct {
	typedv2.CiliumNodeInterface
	agent *agent
}

func (c ciliumNodes) List(context.Context, metav1.ListOptions) (*ciliumv2.CiliumNodeList, error) {
	list := &ciliumv2.CiliumNodeList{Items: []ciliumv2.CiliumNode{*c.agent.seen.DeepCopy()}}
	list.ResourceVersion = c.agent.seen.ResourceVersion
	return list, nil
}

// Watch refuses a watch with initial events, as a server without them: the agent lists.
func (c ciliumNodes) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "cilium.io", Kind: "CiliumNode"}, "", nil)
	}
	return c.agent.events, nil
}

// UpdateStatus waits for the response of the test. A process that has ended waits forever.
func (c ciliumNodes) UpdateStatus(_ context.Context, node *ciliumv2.CiliumNode, _ metav1.UpdateOptions) (*ciliumv2.CiliumNode, error) {
	u := statusUpdate{node, make(chan error)}
	select {
	case c.agent.updates <- u:
	case <-c.agent.ended:
		select {}
	}
	select {
	case err := <-u.response:
		return node, err
	case <-c.agent.ended:
		select {}
	}
}
