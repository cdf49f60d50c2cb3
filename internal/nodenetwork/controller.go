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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
	"github.com/delegated-ipam/delegated-ipam/internal/nodenetwork/internal/render"
)

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
	if c.confirmed {
		if want := c.decide(c.last); want.done() {
			return want.problem, false
		}
	}
	// Each write and removal is based on a fresh read of the Node: the watch may lag behind.
	now, err := c.get(ctx)
	if err != nil {
		return apiProblem(err), true
	}
	c.last, c.confirmed = now, true
	want := c.decide(now)
	if err := c.apply(want); err != nil {
		return problemf(reasonNotWritten, "cannot change --output %s: %s", c.output, err), true
	}
	return want.problem, false
}

// get reads the Node from the API server, not from a cache; nil if it does not exist.
func (c *controller) get(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	n, err := c.nodes.Get(ctx, c.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		c.status.apiErrors.WithLabelValues("get").Inc()
		return nil, err
	}
	return n, nil
}

// decision is the wanted state of the file.
type decision struct {
	// content is the wanted content, existing the present one; nil for no file.
	content, existing []byte
	// problem is the reason why the file is not up to date; nil if it is.
	problem *problem
}

func (d decision) done() bool {
	return (d.content == nil) == (d.existing == nil) && bytes.Equal(d.content, d.existing)
}

// decide returns the wanted state of the file for a Node; nil is a Node that does not exist. A refused
// template does not stop a working node: a file that was rendered for the same Node with the same
// podCIDRs, labels and annotations is kept.
func (c *controller) decide(n *corev1.Node) decision {
	d := decision{existing: c.output.read()}
	if n == nil {
		d.problem = problemf(reasonNodeMissing, "Node %q does not exist, so this node has no range; expected the kubelet to register it under the name of --node-name. The file %s is removed", c.name, c.output)
		return d
	}
	text, err := files.Read(c.template, maxFile)
	if err == nil {
		d.content, err = render.Render(string(text), n, c.options)
	}
	if err == nil {
		return d
	}
	d.problem = c.renderProblem(err)
	if d.problem.reason != reasonNoPodCIDR && render.IsOf(d.existing, n, c.options) {
		d.content = d.existing
	}
	return d
}

func (c *controller) apply(want decision) error {
	switch {
	case want.done():
		return nil
	case want.content == nil:
		c.status.changes.WithLabelValues(changeRemoved).Inc()
		c.log.WithField("file", string(c.output)).Warn("Removing the network configuration")
		return c.output.remove()
	}
	if err := files.Replace(string(c.output), want.content, fileMode); err != nil {
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
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return []byte{}
	}
	return content
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
	left, err := filepath.Glob(files.TemporaryFiles(string(o)))
	if err != nil {
		return // the path is not a valid pattern; the files are harmless
	}
	for _, path := range left {
		_ = os.Remove(path)
	}
}
