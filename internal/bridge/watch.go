package bridge

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
)

const (
	resourceNodes = "ciliumnodes"
	resourcePods  = "pods"
)

// measure makes a watch count its failed requests, and returns a function that updates its state.
func measure[T any](w *kube.Watch[T], m *metrics, resource string) (state func()) {
	state = func() { m.watches.WithLabelValues(resource).Set(map[bool]float64{true: 1}[w.Connected()]) }
	w.Requested = func(verb string, err error) {
		state()
		if err != nil {
			m.apiErrors.WithLabelValues(verb).Inc()
		}
	}
	return state
}

// nodePods are the pods of a node that have or need an address. All of them are counted, with and
// without an address, because the agent's list of used addresses is older.
type nodePods struct {
	// pending reports whether they will be listed.
	pending bool
	// count is their number, 0 if unknown; ips are their addresses.
	count int
	ips   map[netip.Addr]bool
}

// newPodWatch returns a watch of the pods of a node. wake is called after the first list, and after
// each change of the number of pods.
func newPodWatch(config *rest.Config, node string, m *metrics, wake func()) (*kube.Watch[*corev1.Pod], error) {
	client, err := typedcorev1.NewForConfig(kube.Protobuf(config))
	if err != nil {
		return nil, err
	}
	w := kube.NewWatch(client.Pods(metav1.NamespaceAll), fields.OneTermEqualSelector("spec.nodeName", node), usedPart)
	// Just before that of the CiliumNode: after an outage the requests for pods follow all those for CiliumNodes.
	w.Offset = kube.Offset(node) - coalesce
	count, state := -1, measure(w, m, resourcePods)
	w.Changed = func(bool) {
		state()
		if n := newNodePods(w.List()).count; n != count {
			count = n
			wake()
		}
	}
	return w, nil
}

// usedPart returns the part of a pod that newNodePods uses.
func usedPart(p *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		Spec:       corev1.PodSpec{HostNetwork: p.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
	}
}

// newNodePods returns the pods that have or need an address. One that is being deleted keeps it until its
// containers have ended.
func newNodePods(all []*corev1.Pod, listed bool) nodePods {
	if !listed {
		return nodePods{pending: true}
	}
	pods := nodePods{ips: map[netip.Addr]bool{}}
	for _, p := range all {
		if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		pods.count++
		for _, ip := range p.Status.PodIPs {
			if ip, _ := ciliumnode.ParseAddress(ip.IP); ip.IsValid() { // in any spelling: the runtime's
				pods.ips[ip] = true
			}
		}
	}
	return pods
}
