// Package bridge keeps spec.ipam.pool of a node's CiliumNode filled with
// addresses of the daemon, so that an unmodified cilium-agent in crd mode gets
// every address from the delegated plugin (docs/operate/bridge.md).
package bridge

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/metricsserver"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// component is the source of the Events and the user agent of requests.
const component = "delegated-ipam-bridge"

// Settings returns how many slots the node has, without what auto depends on.
func Settings(o options.Bridge) planner.Settings {
	return planner.Settings{
		MinAllocate: o.MinAllocate, PreAllocate: cmp.Or(o.PreAllocate, options.SharedPreAllocate), MaxAllocate: o.MaxAllocate,
		MaxAboveWatermark: o.MaxAboveWatermark, ReleaseExcess: o.ReleaseExcess,
	}
}

// Validate reports each option that cannot work: its name, its value and what is expected.
func Validate(o options.Bridge) error { return errors.Join(o.Validate(), Settings(o).Validate()) }

// Run serves one node until ctx ends, and then returns nil. It does not release addresses at its end:
// the agent keeps working with the published ones. It fails if the options are invalid, if the
// configuration for the API server is missing, and if the metrics address is in use.
func Run(ctx context.Context, o options.Bridge, log logrus.FieldLogger) error {
	if err := Validate(o); err != nil {
		return err
	}
	config, err := kube.Config(o.Kubeconfig, component)
	if err != nil {
		return err
	}
	address, err := options.ListenAddress(o.MetricsAddress)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	c, err := newController(ctx, o, config, log)
	if err != nil {
		return err
	}
	group.Go(func() error { return metricsserver.ListenAndServe(ctx, address, c.metrics.handler()) })
	group.Go(func() error {
		c.run(ctx)
		return nil
	})
	return group.Wait()
}

func newController(ctx context.Context, o options.Bridge, config *rest.Config, log logrus.FieldLogger) (*controller, error) {
	api, err := client.New(options.Socket(o.Host))
	if err != nil {
		return nil, err
	}
	m := newMetrics()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return timedTransport{next, m} })
	nodes, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	events, err := nodeevents.NewRecorder(ctx, config, component, o.NodeName)
	if err != nil {
		return nil, err
	}
	c := &controller{
		log:       log,
		allocator: daemonClient{api: api, pool: o.Pool, node: o.NodeName},
		pods:      func() nodePods { return nodePods{} },
		settings:  Settings(o),
		state:     newState(o.ReleaseDelay),
		problems:  nodeevents.New(log, events, o.NodeName),
		metrics:   m,
		loop:      kube.NewLoop(),
	}
	m.cause = c.problems.String
	// When the API server responds again, nothing is waited for.
	node := newWatchedNode(nodes, o.NodeName, m, func(all bool) {
		if all {
			c.loop.Retry()
		}
		c.wake()
	})
	c.node = node
	go node.watch.Run(ctx)
	if o.PreAllocate == 0 { // auto
		if c.allocatablePods, err = allocatablePods(config, o.NodeName, m); err != nil {
			return nil, err
		}
	}
	if !o.WatchPods {
		return c, nil
	}
	pods, err := newPodWatch(config, o.NodeName, m, c.wake)
	if err != nil {
		return nil, err
	}
	// First the bridges write what they have planned during the outage. A watch that is not permitted never connects.
	pods.After = func() bool {
		return apierrors.IsForbidden(node.watch.Err()) || node.watch.Connected() && time.Now().After(node.resumes())
	}
	c.pods = func() nodePods { return newNodePods(pods.List()) }
	go pods.Run(ctx)
	return c, nil
}
