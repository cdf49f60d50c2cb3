package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// churnPods is the number of pods that exist at the same time.
	churnPods = 8
	// churnLabel is the label of the pods that are created one by one.
	churnLabel = "app=churn"
	// churnPause is the time between a creation with a deletion, and the next.
	churnPause = 2 * time.Second
)

// churn creates pods and deletes the oldest ones.
type churn struct {
	tb      *testbed
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	created int
	// failed has the errors of requests.
	failed []error
}

// startChurn starts to create and delete pods. Its stop must be called.
func (tb *testbed) startChurn(t *testing.T) *churn {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &churn{tb: tb, cancel: cancel}
	c.ended.Go(func() {
		for ; ctx.Err() == nil; sleep(ctx, churnPause) {
			c.step(context.WithoutCancel(ctx))
		}
	})
	return c
}

// step creates one pod, and deletes the oldest if there are too many.
func (c *churn) step(ctx context.Context) {
	if err := c.tb.Create(ctx, waitingPod(churnName(c.created))); err != nil {
		c.failed = append(c.failed, err)
		return
	}
	c.created++
	if oldest := c.created - churnPods; oldest > 0 {
		if err := c.delete(ctx, oldest-1); err != nil {
			c.failed = append(c.failed, err)
		}
	}
}

func (c *churn) delete(ctx context.Context, number int) error {
	err := c.tb.pods(podNamespace).Delete(ctx, churnName(number), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// stop waits until all pods run, deletes them and waits until they are removed. It returns the number of
// pods that were created.
func (c *churn) stop(t *testing.T) int {
	t.Helper()
	c.cancel()
	c.ended.Wait()
	for _, err := range c.failed {
		t.Errorf("churn: %v", err)
	}
	c.tb.waitAllReady(t, "the last pods to be ready")
	for number := range c.created {
		harness.Must(t, c.delete(t.Context(), number))
	}
	c.tb.waitLeft(t, "the last pods to be deleted", 0)
	return c.created
}

// waitAllReady waits until all pods that are not being deleted are ready.
func (tb *testbed) waitAllReady(t *testing.T, what string) {
	t.Helper()
	cluster.MustEventually(t, what, convergeTimeout, func() error {
		pods, err := tb.running(t.Context())
		if err != nil {
			return err
		}
		for _, p := range pods {
			if !podReady(p) {
				return fmt.Errorf("pod %s on %s is not ready", p.Name, p.Spec.NodeName)
			}
		}
		return nil
	})
}

// waitLeft waits until at most that many pods exist that the tests have created one by one.
func (tb *testbed) waitLeft(t *testing.T, what string, most int) {
	t.Helper()
	cluster.MustEventually(t, what, convergeTimeout, func() error {
		pods, err := tb.pods(podNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: churnLabel})
		if err == nil && len(pods.Items) > most {
			err = fmt.Errorf("%d pods are left", len(pods.Items))
		}
		return err
	})
}

// startPodOn creates a pod on a node, and waits until it is ready. Statuses may be old for a while
// after a kill; a new pod needs all parts.
func (tb *testbed) startPodOn(t *testing.T, n *node, name string) {
	t.Helper()
	tb.createPodOn(t, n, name)
	tb.waitPodOn(t, n, name)
}

// waitPodOn waits until a pod is ready, and deletes it.
func (tb *testbed) waitPodOn(t *testing.T, n *node, name string) {
	t.Helper()
	cluster.MustEventually(t, "a new pod on "+n.name, convergeTimeout, func() error {
		object, err := tb.pods(podNamespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p, err := as[corev1.Pod](object)
		if err == nil && !podReady(p) {
			err = fmt.Errorf("pod %s is not ready: %s", name, p.Status.Phase)
		}
		return err
	})
	harness.Must(t, tb.pods(podNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// createPodOn creates a pod on a node.
func (tb *testbed) createPodOn(t *testing.T, n *node, name string) {
	t.Helper()
	pod := waitingPod(name)
	harness.Must(t, unstructured.SetNestedField(pod.Object, n.name, "spec", "nodeName"))
	harness.Must(t, tb.Create(t.Context(), pod))
}

func churnName(number int) string { return fmt.Sprintf("churn-%d", number) }

// waitingPod returns a pod that only waits.
func waitingPod(name string) *unstructured.Unstructured {
	pod := cluster.Object("v1", "Pod", name)
	pod.SetNamespace(podNamespace)
	pod.SetLabels(map[string]string{"app": "churn"})
	pod.Object["spec"] = map[string]any{
		"automountServiceAccountToken":  false,
		"terminationGracePeriodSeconds": int64(1),
		"dnsPolicy":                     "Default",
		"containers":                    []any{map[string]any{"name": "wait", "image": "localhost/cluster-test/busybox:1", "imagePullPolicy": "Never"}},
	}
	return pod
}
