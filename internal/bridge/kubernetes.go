package bridge

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
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
	w := watchedNode{nodeAPI: nodeAPI{resource, name}, store: &nodeStore{name: name, wake: wake}, watcher: newWatcher(m, resourceNodes), metrics: m}
	source := kube.ListWatch(resource, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	go w.watcher.run(ctx, source, &unstructured.Unstructured{}, w.store)
	return w
}

// cached returns the CiliumNode of the watch, nil for none, and whether the watch works.
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
