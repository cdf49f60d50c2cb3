package bridge

import (
	"context"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
)

// podStore keeps the addresses of the pods of a node that have or need one, for a reflector. All of
// them are counted, with and without an address, because the agent's list of used addresses is older.
type podStore struct {
	// wake is called after the first list, and after each change of the number.
	wake func()

	mu     sync.Mutex
	listed bool
	pods   map[types.UID][]corev1.PodIP
}

// nodePods are the pods of a node that have or need an address.
type nodePods struct {
	// pending reports whether they will be listed.
	pending bool
	// count is their number, 0 if unknown; ips are their addresses.
	count int
	ips   map[netip.Addr]bool
}

// watchPods watches the pods of a node until ctx ends, while the watch of after works.
func watchPods(ctx context.Context, config *rest.Config, node string, m *metrics, after *watcher, wake func()) (*podStore, error) {
	client, err := typedcorev1.NewForConfig(kube.Protobuf(config))
	if err != nil {
		return nil, err
	}
	source := kube.ListWatch(client.Pods(metav1.NamespaceAll), fields.OneTermEqualSelector("spec.nodeName", node))
	s := newPodStore(wake)
	w := newWatcher(m, resourcePods)
	w.after = after
	go w.run(ctx, source, &corev1.Pod{}, s)
	return s, nil
}

func newPodStore(wake func()) *podStore {
	return &podStore{wake: wake, pods: map[types.UID][]corev1.PodIP{}}
}

// get returns the pods.
func (s *podStore) get() nodePods {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := nodePods{pending: !s.listed, count: len(s.pods), ips: map[netip.Addr]bool{}}
	for _, ips := range s.pods {
		for _, ip := range ips {
			if ip, ok := ciliumnode.ParseAddress(ip.IP); ok {
				p.ips[ip] = true
			}
		}
	}
	return p
}

// Add implements cache.ReflectorStore.
func (s *podStore) Add(object any) error {
	if p, ok := object.(*corev1.Pod); ok {
		s.change(func() {
			delete(s.pods, p.UID)
			if needsAddress(p) {
				s.pods[p.UID] = p.Status.PodIPs
			}
		})
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *podStore) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *podStore) Delete(object any) error {
	if p, ok := object.(*corev1.Pod); ok {
		s.change(func() { delete(s.pods, p.UID) })
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *podStore) Replace(objects []any, _ string) error {
	pods := map[types.UID][]corev1.PodIP{}
	for _, object := range objects {
		if p, ok := object.(*corev1.Pod); ok && needsAddress(p) {
			pods[p.UID] = p.Status.PodIPs
		}
	}
	s.change(func() { s.pods, s.listed = pods, true })
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *podStore) Resync() error { return nil }

// change changes the pods, and wakes the bridge after the first list and if their number has changed.
func (s *podStore) change(change func()) {
	s.mu.Lock()
	before, listed := len(s.pods), s.listed
	change()
	changed := len(s.pods) != before || s.listed != listed
	s.mu.Unlock()
	if changed {
		s.wake()
	}
}

// needsAddress reports whether a pod has or needs an address. One that is being deleted keeps it until
// its containers have ended.
func needsAddress(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}
