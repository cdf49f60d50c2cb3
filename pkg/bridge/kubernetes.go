package bridge

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Requests to the API server in a second, and at once: several times what one
// handshake needs, and no load for a server that many nodes have in common.
const (
	requestRate  = 20
	requestBurst = 40
)

// restConfig is how the API server is reached: by a kubeconfig, or as a pod.
func restConfig(kubeconfig string) (*rest.Config, error) {
	c, err := credentials(kubeconfig)
	if err != nil {
		return nil, err
	}
	c.QPS, c.Burst, c.UserAgent = requestRate, requestBurst, component
	return c, nil
}

func credentials(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("%w; outside a pod, name a file with --kubeconfig", err)
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return c, nil
}

// watched is the CiliumNode at the API server, with an informer that remembers it.
type watched struct {
	nodes
	informer cache.SharedIndexInformer
	metrics  *metrics
}

// watch follows the CiliumNode of a name until ctx ends. Every change of it
// puts a value into the channel.
func watch(ctx context.Context, client dynamic.Interface, name string, m *metrics) (watched, <-chan struct{}, error) {
	w := watched{nodes: nodes{client.Resource(resource()), name}, metrics: m}
	w.informer = dynamicinformer.NewFilteredDynamicInformer(client, resource(), metav1.NamespaceNone, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}).Informer()
	wake := make(chan struct{}, 1)
	changed := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err != nil || key != name {
			return // another node's
		}
		select {
		case wake <- struct{}{}:
		default: // it has not been taken yet
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

// cached is the CiliumNode as the informer has seen it last.
func (w watched) cached() *ciliumNode {
	object, there, err := w.informer.GetStore().GetByKey(w.name)
	if err != nil || !there {
		return nil
	}
	seen, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	n, err := readNode(seen)
	if err != nil {
		return nil // reading it afresh tells why
	}
	return n
}

func (w watched) get(ctx context.Context) (*ciliumNode, error) {
	n, err := w.nodes.get(ctx)
	return n, w.count("get", err)
}

func (w watched) permitted(ctx context.Context) error {
	return w.count("patch", w.nodes.permitted(ctx))
}

func (w watched) patch(ctx context.Context, p patch) (*ciliumNode, error) {
	n, err := w.nodes.patch(ctx, p)
	return n, w.count("patch", err)
}

func (w watched) count(operation string, err error) error {
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.metrics.apiErrors.WithLabelValues(operation).Inc()
	}
	return err
}
