package nodenetwork

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/nodenetwork/internal/render"
)

// nodeSource reads and watches one Node at the API server. It keeps only the fields that a template
// may use.
type nodeSource struct {
	client typedcorev1.NodeInterface
	name   string
	failed func(operation string)
	watch  *kube.Watch[*corev1.Node]
}

// newNodeSource returns the Node of a name. changed is called after each change and each request of its
// watch, failed after each failed request.
func newNodeSource(client typedcorev1.NodeInterface, name string, changed func(), failed func(operation string)) *nodeSource {
	s := &nodeSource{client: client, name: name, failed: failed}
	s.watch = kube.NewWatch(client, fields.OneTermEqualSelector(metav1.ObjectNameField, name), func(n *corev1.Node) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, Labels: n.Labels, Annotations: n.Annotations},
			Spec:       corev1.NodeSpec{PodCIDRs: n.Spec.PodCIDRs},
		}
	})
	s.watch.Offset = kube.Offset(name)
	s.watch.Changed = func(bool) { changed() }
	s.watch.Requested = func(verb string, err error) {
		if err != nil {
			failed(verb)
		}
		changed()
	}
	return s
}

func notPermitted(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// get reads the Node from the API server, not from a cache; nil if it does not exist.
func (s *nodeSource) get(ctx context.Context) (*render.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	n, err := s.client.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		s.failed("get")
		return nil, err
	}
	return reduce(n), nil
}

// observed returns the Node of the watch, nil if it does not exist. synced is false before the first
// response; refused is the error of a watch that is not permitted.
func (s *nodeSource) observed() (n *render.Node, synced bool, refused error) {
	all, synced := s.watch.List()
	for _, is := range all {
		if is.Name == s.name {
			n = reduce(is)
		}
	}
	if err := s.watch.Err(); notPermitted(err) {
		refused = err
	}
	return n, synced, refused
}

func reduce(n *corev1.Node) *render.Node {
	return &render.Node{Name: n.Name, UID: string(n.UID), PodCIDRs: n.Spec.PodCIDRs, Labels: n.Labels, Annotations: n.Annotations}
}
