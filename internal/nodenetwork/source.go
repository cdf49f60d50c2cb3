package nodenetwork

import (
	"cmp"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/nodenetwork/internal/render"
)

// nodeSource reads and watches one Node at the API server. It keeps only the fields that a template
// may use.
type nodeSource struct {
	client typedcorev1.NodeInterface
	name   string
	// changed is called after each change, failed with each failed request.
	changed func()
	failed  func(operation string)
	store   *kube.Store[*render.Node]

	mu sync.Mutex
	// refused are the errors of the last LIST and the last watch if they were not permitted, by
	// operation: the reflector lists before each watch.
	refused map[string]error
}

func newNodeSource(client typedcorev1.NodeInterface, name string, changed func(), failed func(operation string)) *nodeSource {
	return &nodeSource{
		client: client, name: name, changed: changed, failed: failed, refused: map[string]error{},
		store: kube.NewStore(func(n *corev1.Node) (*render.Node, bool) { return reduce(n), n.Name == name }, func(bool) { changed() }),
	}
}

// run watches until ctx ends. After a failed watch the reflector lists again, with a delay that grows
// to half a minute.
func (s *nodeSource) run(ctx context.Context) {
	only := kube.ListWatch(s.client, fields.OneTermEqualSelector(metav1.ObjectNameField, s.name))
	cache.NewReflectorWithOptions(listWatch{only, s}, &corev1.Node{}, s.store, cache.ReflectorOptions{Name: "node"}).RunWithContext(ctx)
}

// listWatch records the results of LIST and watch.
type listWatch struct {
	*cache.ListWatch
	source *nodeSource
}

func (l listWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := l.ListWatch.ListWithContext(ctx, o)
	l.source.record("list", err)
	return list, err
}

func (l listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := l.ListWatch.WatchWithContext(ctx, o)
	l.source.record("watch", err)
	return w, err
}

// IsWatchListSemanticsUnSupported makes the reflector use LIST: for one object it is as cheap as a
// stream of the initial state, and every API server has it.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// record counts an error of LIST or watch, and records whether it was a missing right.
func (s *nodeSource) record(operation string, err error) {
	if err != nil {
		s.failed(operation)
	}
	if !notPermitted(err) {
		err = nil
	}
	s.mu.Lock()
	changed := (s.refused[operation] == nil) != (err == nil)
	s.refused[operation] = err
	s.mu.Unlock()
	if changed {
		s.changed()
	}
}

func notPermitted(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// get reads the Node from the API server, not from a cache; nil if it does not exist.
func (s *nodeSource) get(ctx context.Context) (*render.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	n, err := s.client.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		s.failed("get")
		return nil, err
	}
	return reduce(n), nil
}

// observed returns the Node of the last LIST or watch event, nil if it does not exist. synced is false
// before the first response; refused is the error of a LIST or watch that is not permitted.
func (s *nodeSource) observed() (n *render.Node, synced bool, refused error) {
	n, synced = s.store.One()
	s.mu.Lock()
	defer s.mu.Unlock()
	return n, synced, cmp.Or(s.refused["list"], s.refused["watch"])
}

func reduce(n *corev1.Node) *render.Node {
	return &render.Node{Name: n.Name, UID: string(n.UID), PodCIDRs: n.Spec.PodCIDRs, Labels: n.Labels, Annotations: n.Annotations}
}
