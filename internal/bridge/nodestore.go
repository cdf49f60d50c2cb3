package bridge

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
)

// nodeStore keeps the CiliumNode of one name for a reflector.
type nodeStore struct {
	name string
	// wake is called after each change.
	wake func()

	mu   sync.Mutex
	node *ciliumnode.Node
}

// get returns the CiliumNode, nil for none.
func (s *nodeStore) get() *ciliumnode.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// Add implements cache.ReflectorStore.
func (s *nodeStore) Add(object any) error {
	if o, ok := object.(*unstructured.Unstructured); ok && o.GetName() == s.name {
		n, err := ciliumnode.Parse(o)
		if err != nil {
			n = nil // the controller reads it and reports the error
		}
		s.set(n)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *nodeStore) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *nodeStore) Delete(object any) error {
	if o, ok := object.(*unstructured.Unstructured); ok && o.GetName() == s.name {
		s.set(nil)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *nodeStore) Replace(objects []any, _ string) error {
	for _, object := range objects {
		if o, ok := object.(*unstructured.Unstructured); ok && o.GetName() == s.name {
			return s.Add(o)
		}
	}
	s.set(nil)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *nodeStore) Resync() error { return nil }

func (s *nodeStore) set(n *ciliumnode.Node) {
	s.mu.Lock()
	s.node = n
	s.mu.Unlock()
	s.wake()
}
