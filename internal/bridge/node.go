package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
)

// watchedNode reads, writes and watches the CiliumNode of one name. It counts the failed requests.
type watchedNode struct {
	resource dynamic.ResourceInterface
	name     string
	metrics  *metrics
	watch    *kube.Watch[metav1.ObjectMetaAccessor]
}

// allocatablePods returns a function that reads how many pods the Node of a name can have.
func allocatablePods(config *rest.Config, name string, m *metrics) (func(context.Context) (int, error), error) {
	client, err := typedcorev1.NewForConfig(kube.Protobuf(config))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
		defer cancel()
		node, err := client.Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			m.apiErrors.WithLabelValues("get").Inc()
			return 0, err
		}
		return int(node.Status.Allocatable.Pods().Value()), nil
	}, nil
}

// newWatchedNode returns the CiliumNode of a name. changed is called after each change of it.
func newWatchedNode(client dynamic.Interface, name string, m *metrics, changed func(all bool)) watchedNode {
	w := watchedNode{resource: client.Resource(ciliumnode.Resource()), name: name, metrics: m}
	w.watch = kube.NewWatch(w.resource, fields.OneTermEqualSelector(metav1.ObjectNameField, name), func(o *unstructured.Unstructured) metav1.ObjectMetaAccessor {
		if n, err := ciliumnode.Parse(o); err == nil {
			return n
		}
		return &metav1.ObjectMeta{Name: o.GetName()} // the controller reads it and reports the error
	})
	w.watch.Offset = kube.Offset(name)
	state := measure(w.watch, m, resourceNodes)
	w.watch.Changed = func(all bool) {
		state()
		changed(all)
	}
	return w
}

func (w watchedNode) cached() (n *ciliumnode.Node, err error) {
	if !w.watch.Connected() {
		err = cmp.Or(w.watch.Err(), errConnecting)
	}
	o, _ := w.watch.Get(w.name)
	n, _ = o.(*ciliumnode.Node)
	return n, err
}

// errConnecting is the error of a watch whose request has not ended.
var errConnecting = errors.New("the CiliumNode is not watched yet")

func (w watchedNode) resumes() time.Time { return w.watch.Resumes() }

func (w watchedNode) get(ctx context.Context) (*ciliumnode.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	object, err := w.resource.Get(ctx, w.name, metav1.GetOptions{})
	return w.parse("get", object, err)
}

// checkWriteAccess checks whether spec and status may be written, by empty patches with dryRun.
// Without the right the API server responds with 403.
func (w watchedNode) checkWriteAccess(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	dryRun := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	for _, p := range []patch{{target: targetSpec}, {target: targetStatus}} {
		_, err := w.resource.Patch(ctx, w.name, types.MergePatchType, []byte("{}"), dryRun, p.subresource()...)
		// A webhook without support for dryRun makes it 400. The rights are checked before any webhook
		// is called, so 400 does not mean a missing right.
		if err != nil && !apierrors.IsBadRequest(err) {
			return w.count("patch", err)
		}
	}
	return nil
}

// patch writes a patch and returns the CiliumNode after it. If the CiliumNode has another version than
// the patch, the error is one of apierrors.IsConflict.
func (w watchedNode) patch(ctx context.Context, p patch) (*ciliumnode.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	field := map[target]string{targetSpec: "pool", targetStatus: "release-ips"}[p.target]
	body, err := json.Marshal(map[string]any{
		"metadata":       map[string]any{"resourceVersion": p.version},
		string(p.target): map[string]any{"ipam": map[string]any{field: p.entries}},
	})
	if err != nil {
		return nil, err
	}
	object, err := w.resource.Patch(ctx, w.name, types.MergePatchType, body, metav1.PatchOptions{}, p.subresource()...)
	return w.parse("patch", object, err)
}

func (w watchedNode) parse(operation string, object *unstructured.Unstructured, err error) (n *ciliumnode.Node, _ error) {
	if err == nil {
		n, err = ciliumnode.Parse(object)
	}
	return n, w.count(operation, err)
}

func (w watchedNode) count(operation string, err error) error {
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.metrics.apiErrors.WithLabelValues(operation).Inc()
	}
	return err
}
