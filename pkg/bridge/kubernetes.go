package bridge

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/ciliumnode"
)

// watchedNode is a nodeAPI with a watch. It counts the failed requests.
type watchedNode struct {
	nodeAPI
	store   *nodeStore
	watcher *watcher
	metrics *metrics
}

// watchNode watches the CiliumNode of a name until ctx ends. wake is called after each change.
func watchNode(ctx context.Context, client dynamic.Interface, name string, m *metrics, wake func()) watchedNode {
	resource := client.Resource(ciliumnode.Resource())
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	w := watchedNode{nodeAPI: nodeAPI{resource, name}, store: &nodeStore{name: name, wake: wake}, watcher: newWatcher(m, resourceNodes), metrics: m}
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return resource.Watch(ctx, o)
		},
	}
	go w.watcher.run(ctx, lists, &unstructured.Unstructured{}, w.store)
	return w
}

// cached returns the CiliumNode that the watch has, nil for none, and whether the watch works.
func (w watchedNode) cached() (n *ciliumnode.Node, watching bool) {
	return w.store.get(), w.watcher.connected()
}

func (w watchedNode) get(ctx context.Context) (*ciliumnode.Node, error) {
	n, err := w.nodeAPI.get(ctx)
	return n, w.count("get", err)
}

func (w watchedNode) checkWriteAccess(ctx context.Context) error {
	return w.count("patch", w.nodeAPI.checkWriteAccess(ctx))
}

func (w watchedNode) patch(ctx context.Context, p patch) (*ciliumnode.Node, error) {
	n, err := w.nodeAPI.patch(ctx, p)
	return n, w.count("patch", err)
}

func (w watchedNode) count(operation string, err error) error {
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.metrics.apiErrors.WithLabelValues(operation).Inc()
	}
	return err
}
