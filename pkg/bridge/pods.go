package bridge

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/delegated-ipam/delegated-ipam/pkg/kubeapi"
)

// podStore counts the pods of a node that have or need an address, for a reflector. It keeps their
// UIDs only. All of them are counted, with and without an address, because the agent's list of used
// addresses is older.
type podStore struct {
	// wake is called after each change of the number.
	wake func()

	mu   sync.Mutex
	pods map[types.UID]bool
}

// watchPods watches the pods of a node until ctx ends, while the watch of after works.
func watchPods(ctx context.Context, config *rest.Config, node string, m *metrics, after *watcher, wake func()) (*podStore, error) {
	client, err := typedcorev1.NewForConfig(kubeapi.Protobuf(config))
	if err != nil {
		return nil, err
	}
	source := kubeapi.ListWatch(client.Pods(metav1.NamespaceAll), fields.OneTermEqualSelector("spec.nodeName", node))
	s := newPodStore(wake)
	w := newWatcher(m, resourcePods)
	w.after = after
	go w.run(ctx, source, &corev1.Pod{}, s)
	return s, nil
}

func newPodStore(wake func()) *podStore {
	return &podStore{wake: wake, pods: map[types.UID]bool{}}
}

// count returns the number of pods, 0 before the first list.
func (s *podStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pods)
}

// Add implements cache.ReflectorStore.
func (s *podStore) Add(object any) error {
	if p, ok := object.(*corev1.Pod); ok {
		s.change(func() {
			delete(s.pods, p.UID)
			if needsAddress(p) {
				s.pods[p.UID] = true
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
	pods := map[types.UID]bool{}
	for _, object := range objects {
		if p, ok := object.(*corev1.Pod); ok && needsAddress(p) {
			pods[p.UID] = true
		}
	}
	s.change(func() { s.pods = pods })
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *podStore) Resync() error { return nil }

// change changes the pods, and wakes the bridge if their number has changed.
func (s *podStore) change(change func()) {
	s.mu.Lock()
	before := len(s.pods)
	change()
	after := len(s.pods)
	s.mu.Unlock()
	if before != after {
		s.wake()
	}
}

// needsAddress reports whether a pod has or needs an address. One that is being deleted keeps it until
// its containers have ended.
func needsAddress(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}
