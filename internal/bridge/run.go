package bridge

import (
	"context"
	"net/http"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// component is the source of the Events and the user agent of requests.
const component = "delegated-ipam-bridge"

// Run serves one node until ctx ends, and then returns nil. It does not release addresses at its end:
// the agent keeps working with the published ones. It fails if the options are invalid, if the
// configuration for the API server is missing, and if the metrics address is in use.
func Run(ctx context.Context, c Config, log logrus.FieldLogger) error {
	if err := c.Validate(); err != nil {
		return err
	}
	config, err := kube.Config(c.Kubeconfig, component)
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
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return timedTransport{next, m} })
	nodes, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	events, err := nodeevents.NewRecorder(ctx, config, component, c.NodeName)
	if err != nil {
		return nil, err
	}
	wake := newWaker()
	node := watchNode(ctx, nodes, c.NodeName, m, wake.wake)
	pods := func() nodePods { return nodePods{} }
	if c.WatchPods {
		store, err := watchPods(ctx, config, c.NodeName, m, node.watcher, wake.wake)
		if err != nil {
			return nil, err
		}
		pods = store.get
	}
	current := nodeevents.New(log, events, c.NodeName)
	m.cause = current.String
	return &controller{
		log:        log,
		node:       node,
		pods:       pods,
		allocator:  sidecarClient{api: api, pool: c.Pool, node: c.NodeName},
		settings:   c.Settings(),
		state:      newState(c.ReleaseDelay),
		conditions: current,
		metrics:    m,
		wake:       wake,
	}, nil
}
