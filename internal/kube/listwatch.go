package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Lister lists and watches the objects of one resource, as a typed client (L is its list) or a dynamic
// one does.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// ListWatch returns a source for a reflector: the objects of a client that a selector selects.
//
// cache.NewListWatchFromClient needs a REST client, which dynamic and fake clients do not have.
func ListWatch[L runtime.Object](client Lister[L], selector fields.Selector) *cache.ListWatch {
	selected := selector.String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selected
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selected
			return client.Watch(ctx, o)
		},
	}
}
