package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// kubectl runs kubectl, or another program that reads KUBECONFIG, as the administrator.
func (tb *testbed) kubectl(ctx context.Context, args ...string) (string, error) {
	return tb.admin(ctx, "kubectl", args...)
}

func (tb *testbed) admin(ctx context.Context, program string, args ...string) (string, error) {
	return run(tb.adminCommand(ctx, program, args...))
}

// adminCommand returns the command of admin, which runs in the repository.
func (tb *testbed) adminCommand(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tb.bin(program), args...)
	cmd.Dir = tb.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(tb.dir, "admin.kubeconfig"), "HOME="+tb.dir)
	return cmd
}

// mustKubectl is kubectl that fails the test.
func (tb *testbed) mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tb.kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// listOf lists the objects of a resource as their type.
func listOf[T any](ctx context.Context, client dynamic.ResourceInterface, options metav1.ListOptions) ([]T, error) {
	list, err := client.List(ctx, options)
	if err != nil {
		return nil, err
	}
	var all []T
	var errs []error
	for _, item := range list.Items {
		one, err := as[T](&item)
		all, errs = append(all, one), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// as converts an object to its type.
func as[T any](object *unstructured.Unstructured) (one T, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &one)
	return one, err
}

func (tb *testbed) pods(namespace string) dynamic.ResourceInterface {
	return tb.Resource("", "v1", "pods").Namespace(namespace)
}

func (tb *testbed) ciliumNodes() dynamic.ResourceInterface {
	return tb.Resource("cilium.io", "v2", "ciliumnodes")
}

// kubeNode returns the node's object.
func (tb *testbed) kubeNode(ctx context.Context, n *node) (corev1.Node, error) {
	object, err := tb.Resource("", "v1", "nodes").Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return corev1.Node{}, err
	}
	return as[corev1.Node](object)
}

// nodeReady returns nil if the node's kubelet reports that it is ready.
func (tb *testbed) nodeReady(ctx context.Context, n *node) error {
	object, err := tb.kubeNode(ctx, n)
	if err != nil {
		return err
	}
	for _, c := range object.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return nil
		}
		return fmt.Errorf("%s: %s", n.name, c.Message)
	}
	return fmt.Errorf("%s has no condition %s", n.name, corev1.NodeReady)
}

// rolledOut returns nil if all DaemonSets of a label have their current pods on all nodes, ready.
func (tb *testbed) rolledOut(ctx context.Context) error {
	sets, err := listOf[appsv1.DaemonSet](ctx, tb.Resource("apps", "v1", "daemonsets").Namespace(systemNamespace), metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(sets) == 0 {
		return errors.New("there is no DaemonSet")
	}
	for _, set := range sets {
		s := set.Status
		if s.ObservedGeneration != set.Generation || int(s.UpdatedNumberScheduled) != len(tb.nodes) || int(s.NumberReady) != len(tb.nodes) {
			return fmt.Errorf("DaemonSet %s: %d pods are current and %d ready; want %d", set.Name, s.UpdatedNumberScheduled, s.NumberReady, len(tb.nodes))
		}
	}
	return nil
}

// healthy returns nil if the nodes, the DaemonSets and the agents are ready.
func (tb *testbed) healthy(ctx context.Context) error {
	for _, n := range tb.nodes {
		if err := tb.nodeReady(ctx, n); err != nil {
			return err
		}
		if err := n.agent().Healthy(ctx); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return tb.rolledOut(ctx)
}

// waitHealthy waits until the cluster is healthy, and returns the time that it took.
func (tb *testbed) waitHealthy(t *testing.T, what string) time.Duration {
	t.Helper()
	begin := time.Now()
	cluster.MustEventually(t, what, convergeTimeout, func() error { return tb.healthy(t.Context()) })
	return time.Since(begin)
}
