package nodehistory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMaps reads and updates the ConfigMaps of one namespace, as client-go's client does.
type ConfigMaps interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.ConfigMap, error)
	Update(ctx context.Context, m *corev1.ConfigMap, o metav1.UpdateOptions) (*corev1.ConfigMap, error)
}

// Store keeps a History in a ConfigMap, with a key for each node. A ConfigMap has room for about
// 10,000 nodes.
type Store struct {
	ConfigMaps ConfigMaps
	// Name is the name of the ConfigMap, which must exist.
	Name string
}

// maxConflicts limits how often a write of another process is read and changed anew.
const maxConflicts = 5

// update replaces the history by the result of change, which is called again after a write of another
// process since the read. An equal history is not written.
func (s Store) update(ctx context.Context, change func(History) History) (h History, err error) {
	for range maxConflicts {
		if h, err = s.tryUpdate(ctx, change); !apierrors.IsConflict(err) {
			break
		}
	}
	return h, err
}

func (s Store) tryUpdate(ctx context.Context, change func(History) History) (History, error) {
	stored, err := s.ConfigMaps.Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w; expected an empty one before the first run: deploy/kubernetes/reclaim has it", err)
	}
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", s.Name, err)
	}
	before, err := decode(stored.Data)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", s.Name, err)
	}
	after := change(before)
	data, err := encode(after)
	if err != nil || maps.Equal(data, stored.Data) {
		return after, err
	}
	stored.Data = data
	if _, err := s.ConfigMaps.Update(ctx, stored, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", s.Name, err)
	}
	return after, nil
}

func decode(data map[string]string) (History, error) {
	h := History{}
	for name, text := range data {
		var e Entry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return nil, fmt.Errorf("key %s: %w; remove the key, which forgets the node if it is lost", name, err)
		}
		h[name] = e
	}
	return h, nil
}

func encode(h History) (map[string]string, error) {
	data := map[string]string{}
	for name, e := range h {
		text, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		data[name] = string(text)
	}
	return data, nil
}
