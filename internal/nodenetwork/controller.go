// Package nodenetwork renders the CNI network configuration of one node from a template and its Node,
// and keeps it in a file for the daemon (docs/install/ranges.md).
package nodenetwork

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/dirwatch"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
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
	address, err := options.ListenAddress(o.MetricsAddress)
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
	group.Go(func() error { return metricsserver.ListenAndServe(ctx, address, c.status.handler()) })
	group.Go(func() error { c.watch.Run(ctx); return nil })
	// Its interval also repairs a file that another process has changed.
	templates := dirwatch.New(filepath.Dir(o.Template), "template", log, c.wake)
	group.Go(func() error { return templates.Run(ctx) })
	c.run(ctx)
	return group.Wait()
}

// controller keeps the output file up to date with the Node and the template. It runs one
// reconciliation at a time.
type controller struct {
	log      logrus.FieldLogger
	name     string
	nodes    typedcorev1.NodeInterface
	watch    *kube.Watch[*corev1.Node]
	template string
	output   output
	options  render.Options
	problems *nodeevents.Problems
	status   *status
	loop     *kube.Loop

	// last is the Node of the last read or observation. confirmed reports whether it was read with a
	// GET since the start: a LIST may come from a cache of the API server with an older Node.
	last      *corev1.Node
	confirmed bool
}

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
			c.status.apiErrors.WithLabelValues(verb).Inc()
		}
		c.wake()
	}
}

// run reconciles until ctx ends. It does not remove the file.
func (c *controller) run(ctx context.Context) {
	c.loop.Run(ctx, func() (time.Duration, bool) { return 0, c.reconcile(ctx) })
}

// wake makes the controller reconcile.
func (c *controller) wake() { c.loop.Wake(0) }

// reconcile brings the file up to date, and reports the problem that it found. failed is as in update.
func (c *controller) reconcile(ctx context.Context) (failed bool) {
	p, failed := c.update(ctx)
	if ctx.Err() != nil {
		return false
	}
	if err := c.watch.Err(); p == nil && notPermitted(err) {
		p = apiProblem(err)
	}
	c.status.set(p)
	if failed {
		c.problems.Fail(p.reason, p.message)
		return true
	}
	current := map[string]nodeevents.Problem{}
	if p != nil {
		current[p.reason] = nodeevents.Problem{Message: p.message}
	}
	c.problems.Succeed()
	c.problems.Observe(current)
	return false
}

// update brings the file up to date with Node and template, and returns the reason why it is not, nil if it is. failed
// reports that this may end without a change of either, so that the caller must retry.
func (c *controller) update(ctx context.Context) (p *problem, failed bool) {
	if observed, listed := c.watch.Get(c.name); listed {
		c.last = observed
	}
	for fresh := false; ; fresh = true {
		existing := c.output.read()
		content, p := c.decide(existing)
		if c.confirmed && (content == nil) == (existing == nil) && bytes.Equal(content, existing) {
			return p, false
		}
		if fresh {
			if err := c.change(content); err != nil {
				return problemf(reasonNotWritten, "cannot change --output %s: %s", c.output, err), true
			}
			return p, false
		}
		// Each write and removal is based on a fresh read of the Node: the watch may lag behind.
		now, err := c.get(ctx)
		if err != nil {
			return apiProblem(err), true
		}
		c.last, c.confirmed = now, true
	}
}

// get reads the Node from the API server, not from a cache; nil if it does not exist.
func (c *controller) get(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	n, err := c.nodes.Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		c.status.apiErrors.WithLabelValues("get").Inc()
	}
	return n, err
}

// decide returns the wanted content of the file for the last Node, nil for no file, and the reason why that is not up
// to date. A refused template does not stop a working node: an existing file that was rendered for the same Node with
// the same podCIDRs, labels and annotations is kept.
func (c *controller) decide(existing []byte) ([]byte, *problem) {
	if c.last == nil {
		return nil, problemf(reasonNodeMissing, "Node %q does not exist, so this node has no range; expected the kubelet to register it under the name of --node-name. The file %s is removed", c.name, c.output)
	}
	template, err := files.Read(c.template, maxFile)
	if err == nil {
		var content []byte
		if content, err = render.Render(string(template), c.last, c.options); err == nil {
			return content, nil
		}
	}
	p := problemf(reasonTemplateRefused, "template %s: %s; correct the template (docs/install/ranges.md). A file that was rendered for the Node as it is now is kept", c.template, err)
	if errors.Is(err, render.ErrNoPodCIDRs) {
		return nil, problemf(reasonNoPodCIDR, "Node %q has no spec.podCIDRs, and the template %s needs them; expected the controller manager to assign them: "+
			"start it with --allocate-node-cidrs and --cluster-cidr (kubeadm init --pod-network-cidr), or use a template without podCIDRs (docs/install/ranges.md)", c.name, c.template)
	}
	if _, shared := errors.AsType[*render.SharedRangeError](err); shared {
		p = problemf(reasonSharedRange, "template %s: %s", c.template, err)
	}
	if !render.IsOf(existing, c.last, c.options) {
		existing = nil
	}
	return existing, p
}

// change writes the file, or removes it without a content.
func (c *controller) change(content []byte) error {
	if content == nil {
		c.status.changes.WithLabelValues(changeRemoved).Inc()
		c.log.WithField("file", string(c.output)).Warn("Removing the network configuration")
		return c.output.remove()
	}
	if err := files.Replace(string(c.output), content, fileMode); err != nil {
		return err
	}
	c.status.changes.WithLabelValues(changeWritten).Inc()
	c.log.WithFields(logrus.Fields{"file": string(c.output), "podCIDRs": c.last.Spec.PodCIDRs}).Info("Network configuration written")
	return nil
}

const (
	// fileMode of the output: any process of the node may read it.
	fileMode = 0o644
	// maxFile limits template and output, in bytes; a ConfigMap has at most 1 MiB.
	maxFile = 1 << 20
)

// output is the file that the daemon reads.
type output string

// read returns the content of the file, nil if it does not exist. For an unreadable file or a
// directory it returns empty content, which differs from any rendered one.
func (o output) read() []byte {
	content, err := files.Read(string(o), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return append([]byte{}, content...)
}

// remove removes the file. A missing file is not an error.
func (o output) remove() error {
	if err := os.Remove(string(o)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeTemporary removes the temporary files of killed processes. A concurrent process whose file is
// removed fails to write, and retries.
func (o output) removeTemporary() {
	left, _ := filepath.Glob(files.TemporaryFiles(string(o))) // none if the path is not a valid pattern; they are harmless
	for _, path := range left {
		_ = os.Remove(path)
	}
}
