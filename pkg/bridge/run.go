package bridge

import (
	"context"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/options"
)

// component is the source of the Events and the user agent of requests.
const component = "delegated-ipam-bridge"

// Run serves one node until ctx ends, and then returns nil. It releases nothing at its end: the agent
// keeps working with the published addresses. It fails if the options are invalid, if there is no
// configuration for the API server, and if the metrics address is in use.
func Run(ctx context.Context, c Config, log logrus.FieldLogger) error {
	if err := c.Validate(); err != nil {
		return err
	}
	config, err := restConfig(c.Kubeconfig)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	m := newMetrics()
	controller, err := newController(ctx, c, config, m, log)
	if err != nil {
		return err
	}
	address, err := options.ListenAddress(c.MetricsAddress)
	if err != nil {
		return err
	}
	if address != "" {
		group.Go(func() error { return serve(ctx, address, m.handler()) })
	}
	group.Go(func() error {
		controller.run(ctx)
		return nil
	})
	return group.Wait()
}

func newController(ctx context.Context, c Config, config *rest.Config, m *metrics, log logrus.FieldLogger) (*controller, error) {
	api, err := client.New(c.Socket())
	if err != nil {
		return nil, err
	}
	nodes, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	events, err := eventRecorder(ctx, config, c.NodeName)
	if err != nil {
		return nil, err
	}
	node, wake, err := watch(ctx, nodes, c.NodeName, m)
	if err != nil {
		return nil, err
	}
	return &controller{
		log:       log,
		node:      node,
		allocator: sidecarClient{api: api, pool: c.Pool, node: c.NodeName},
		settings:  c.Settings(),
		state:     newState(c.ReleaseDelay),
		// An Event on a node has the node's name as UID, as the kubelet writes it; "kubectl describe
		// node" finds it by that.
		conditions: newConditions(log, events, &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: c.NodeName, UID: types.UID(c.NodeName)}),
		metrics:    m,
		wake:       wake,
	}, nil
}

// eventRecorder returns a recorder that writes Events in the background. One that cannot be written is
// lost.
func eventRecorder(ctx context.Context, config *rest.Config, node string) (record.EventRecorder, error) {
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	return broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: component, Host: node}), nil
}
