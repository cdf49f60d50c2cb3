package kube

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Lister lists and watches the objects of one resource, as a typed client (L is its list) or a dynamic
// one does.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// ListWatch returns a source for a reflector: the objects of a client that a selector selects. Dynamic
// and fake clients have no REST client for cache.NewListWatchFromClient.
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

// Store keeps a part of each object that a reflector reads. It implements cache.ReflectorStore.
type Store[T any] struct {
	part    func(object any) (uid types.UID, part T, keep bool)
	changed func(number bool)

	mu     sync.Mutex
	listed bool
	parts  map[types.UID]T
}

// NewStore returns an empty store. part returns the part of an object to keep, false for none. changed is
// called after each change, and reports whether it was the first list or has changed the number of parts.
func NewStore[O metav1.Object, T any](part func(O) (T, bool), changed func(number bool)) *Store[T] {
	return &Store[T]{parts: map[types.UID]T{}, changed: changed, part: func(object any) (uid types.UID, kept T, keep bool) {
		if o, ok := object.(O); ok {
			uid = o.GetUID()
			kept, keep = part(o)
		}
		return uid, kept, keep
	}}
}

// All returns the parts, and whether the objects were listed.
func (s *Store[T]) All() (parts []T, listed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.parts)), s.listed
}

// One returns the part of the only object, the zero value for none, and whether the objects were listed.
func (s *Store[T]) One() (part T, listed bool) {
	parts, listed := s.All()
	if len(parts) > 0 {
		part = parts[0]
	}
	return part, listed
}

func (s *Store[T]) Add(object any) error {
	uid, part, keep := s.part(object)
	s.change(func() {
		delete(s.parts, uid)
		if keep {
			s.parts[uid] = part
		}
	})
	return nil
}

func (s *Store[T]) Update(object any) error { return s.Add(object) }

func (s *Store[T]) Delete(object any) error {
	uid, _, _ := s.part(object)
	s.change(func() { delete(s.parts, uid) })
	return nil
}

func (s *Store[T]) Replace(objects []any, _ string) error {
	parts := map[types.UID]T{}
	for _, object := range objects {
		if uid, part, keep := s.part(object); keep {
			parts[uid] = part
		}
	}
	s.change(func() { s.parts, s.listed = parts, true })
	return nil
}

func (s *Store[T]) Resync() error { return nil }

func (s *Store[T]) change(change func()) {
	s.mu.Lock()
	before, listed := len(s.parts), s.listed
	change()
	number := len(s.parts) != before || s.listed != listed
	s.mu.Unlock()
	s.changed(number)
}
