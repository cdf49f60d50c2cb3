// Package nodenetwork renders the CNI network configuration of one node from a template and its Node,
// and keeps it in a file for the daemon (docs/install/ranges.md).
package nodenetwork

import (
	"context"
	"path/filepath"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/dirwatch"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/metricsserver"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
	"github.com/delegated-ipam/delegated-ipam/internal/nodenetwork/internal/render"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// component is the source of the Events and the user agent of requests.
const component = "delegated-ipam-network"

// Run keeps the output file of one node up to date until ctx ends, and then returns nil without
// removing the file. With the option Remove it only removes the file. It fails if the options are
// invalid, if the configuration for the API server is missing, and if the metrics address is in use.
func Run(ctx context.Context, o options.Network, log logrus.FieldLogger) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Remove {
		output(o.Output).removeTemporary()
		return output(o.Output).remove()
	}
	config, err := kube.Config(o.Kubeconfig, component)
	if err != nil {
		return err
	}
	profiles, err := profile.Load()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	events, err := nodeevents.NewRecorder(ctx, config, component, o.NodeName)
	if err != nil {
		return err
	}
	client, err := typedcorev1.NewForConfig(kube.Protobuf(config))
	if err != nil {
		return err
	}
	c := &controller{
		log: log, name: o.NodeName, template: o.Template, output: output(o.Output),
		options:  render.Options{SingleNode: o.SingleNode, Profiles: profiles},
		problems: nodeevents.New(log, events, o.NodeName), status: newStatus(), loop: kube.NewLoop(),
	}
	defer c.problems.Stop()
	c.connect(client.Nodes())
	c.output.removeTemporary()
	group.Go(func() error { return metricsserver.ListenAndServe(ctx, o.MetricsAddress, c.status.handler()) })
	go c.watch.Run(ctx)
	// Its interval also repairs a file that another process has changed.
	templates := dirwatch.New(filepath.Dir(o.Template), "template", log, c.wake)
	group.Go(func() error { return templates.Run(ctx) })
	c.run(ctx)
	return group.Wait()
}
