package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"github.com/delegated-ipam/delegated-ipam/internal/fleet/lostnodes"
)

// History keeps a lostnodes.History in a ConfigMap, with a key for each node. A ConfigMap has room for
// about 10,000 nodes.
type History struct {
	ConfigMaps typedcorev1.ConfigMapInterface
	// Name is the name of the ConfigMap, which must exist.
	Name string
}

// History returns the history in a ConfigMap, which needs the rights to get and update it.
func (c *Cluster) History(namespace, name string) History {
	return History{c.core.ConfigMaps(namespace), name}
}

// Update replaces the history by the result of change, which is called again after a write of
// another process since the read. An equal history is not written.
func (s History) Update(ctx context.Context, change func(lostnodes.History) lostnodes.History) (after lostnodes.History, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		stored, err := s.ConfigMaps.Get(ctx, s.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w; expected an empty one before the first run: deploy/kubernetes/overlays/reclaim has it", err)
		}
		if err != nil {
			return fmt.Errorf("ConfigMap %s: %w", s.Name, err)
		}
		before := lostnodes.History{}
		for name, text := range stored.Data {
			var e lostnodes.Entry
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return fmt.Errorf("ConfigMap %s: key %s: %w; remove the key, which forgets the node if it is lost", s.Name, name, err)
			}
			before[name] = e
		}
		after = change(before)
		data := map[string]string{}
		for name, e := range after {
			text, err := json.Marshal(e)
			if err != nil {
				return err
			}
			data[name] = string(text)
		}
		if maps.Equal(data, stored.Data) {
			return nil
		}
		stored.Data = data
		if _, err = s.ConfigMaps.Update(ctx, stored, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("ConfigMap %s: %w", s.Name, err)
		}
		return nil
	})
	return after, err
}
