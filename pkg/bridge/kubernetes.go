package bridge

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/ciliumnode"
)

// watchedNode is a nodeAPI with an informer. It counts the failed requests.
type watchedNode struct {
	nodeAPI
	informer cache.SharedIndexInformer
	metrics  *metrics
}

// watch watches the CiliumNode of a name until ctx ends. The channel receives a value after each
// change.
func watch(ctx context.Context, client dynamic.Interface, name string, m *metrics) (watchedNode, <-chan struct{}, error) {
	w := watchedNode{nodeAPI: nodeAPI{client.Resource(ciliumnode.Resource()), name}, metrics: m}
	w.informer = dynamicinformer.NewFilteredDynamicInformer(client, ciliumnode.Resource(), metav1.NamespaceNone, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}).Informer()
	wake := make(chan struct{}, 1)
	changed := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err != nil || key != name {
			return // another node
		}
		select {
		case wake <- struct{}{}:
		default: // the last change is still pending
		}
	}
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, DeleteFunc: changed,
		UpdateFunc: func(_, object any) { changed(object) },
	})
	if err != nil {
		return w, nil, err
	}
	err = w.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		m.apiErrors.WithLabelValues("watch").Inc()
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return w, nil, err
	}
	go w.informer.RunWithContext(ctx)
	return w, wake, nil
}

// cached returns the CiliumNode that the informer has, nil for none.
func (w watchedNode) cached() *ciliumnode.Node {
	object, there, err := w.informer.GetStore().GetByKey(w.name)
	if err != nil || !there {
		return nil
	}
	seen, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	n, err := ciliumnode.Parse(seen)
	if err != nil {
		return nil // get returns the error
	}
	return n
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
