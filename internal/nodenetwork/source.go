package nodenetwork

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/kube"
)

// connect sets the client, and the watch of the Node. That keeps only the fields that a template may use, and makes the
// controller reconcile after each change and each request.
func (c *controller) connect(client typedcorev1.NodeInterface) {
	c.nodes = client
	c.watch = kube.NewWatch(client, fields.OneTermEqualSelector(metav1.ObjectNameField, c.name), func(n *corev1.Node) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, Labels: n.Labels, Annotations: n.Annotations},
			Spec:       corev1.NodeSpec{PodCIDRs: n.Spec.PodCIDRs},
		}
	})
	c.watch.Offset = kube.Offset(c.name)
	c.watch.Changed = func(bool) { c.wake() }
	c.watch.Requested = func(verb string, err error) {
		if err != nil {
			c.status.apiFailed(verb)
		}
		c.wake()
	}
}

func notPermitted(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// get reads the Node from the API server, not from a cache; nil if it does not exist.
func (c *controller) get(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	n, err := c.nodes.Get(ctx, c.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		c.status.apiFailed("get")
		return nil, err
	}
	return n, nil
}

// observed returns the Node of the watch, nil if it does not exist. synced is false before the first
// response; refused is the error of a watch that is not permitted.
func (c *controller) observed() (n *corev1.Node, synced bool, refused error) {
	all, synced := c.watch.List()
	for _, is := range all {
		if is.Name == c.name {
			n = is
		}
	}
	if err := c.watch.Err(); notPermitted(err) {
		refused = err
	}
	return n, synced, refused
}
