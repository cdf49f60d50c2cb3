package bridge

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
)

// nodePods are the pods of a node that have or need an address. All of them are counted, with and
// without an address, because the agent's list of used addresses is older.
type nodePods struct {
	// pending reports whether they will be listed.
	pending bool
	// count is their number, 0 if unknown; ips are their addresses.
	count int
	ips   map[netip.Addr]bool
}

// watchPods watches the pods of a node until ctx ends, while the watch of after works. wake is called
// after the first list, and after each change of the number of pods.
func watchPods(ctx context.Context, config *rest.Config, node string, m *metrics, after *watcher, wake func()) (get func() nodePods, err error) {
	client, err := typedcorev1.NewForConfig(kube.Protobuf(config))
	if err != nil {
		return nil, err
	}
	source := kube.ListWatch(client.Pods(metav1.NamespaceAll), fields.OneTermEqualSelector("spec.nodeName", node))
	store := newPodStore(wake)
	w := newWatcher(m, resourcePods)
	w.after = after
	go w.run(ctx, source, &corev1.Pod{}, store)
	return func() nodePods { return newNodePods(store.All()) }, nil
}

func newPodStore(wake func()) *kube.Store[[]corev1.PodIP] {
	return kube.NewStore(needsAddress, func(number bool) {
		if number {
			wake()
		}
	})
}

func newNodePods(all [][]corev1.PodIP, listed bool) nodePods {
	p := nodePods{pending: !listed, count: len(all), ips: map[netip.Addr]bool{}}
	for _, ips := range all {
		for _, ip := range ips {
			if ip, ok := ciliumnode.ParseAddress(ip.IP); ok {
				p.ips[ip] = true
			}
		}
	}
	return p
}

// needsAddress returns the addresses of a pod that has or needs one. A pod that is being deleted keeps it
// until its containers have ended.
func needsAddress(p *corev1.Pod) ([]corev1.PodIP, bool) {
	return p.Status.PodIPs, !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}
