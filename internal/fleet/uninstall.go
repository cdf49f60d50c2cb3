package fleet

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/delegated-ipam/delegated-ipam/internal/fleet/audit"
)

// ReleaseContainer is the init container that releases the addresses of its node.
const ReleaseContainer = "release"

// Uninstall removes the programs of an installation in the order in which no address stays allocated. Between
// Prepare and Finish a DaemonSet NAME-uninstall is created, whose pods release the addresses of their nodes.
type Uninstall struct {
	Cluster *Cluster
	// Namespace and Name are those of the DaemonSet of the daemon. The others are named NAME-PART.
	Namespace, Name string
	// KeepDaemon leaves the daemon, which is not part of the installation.
	KeepDaemon bool
	// Interval is the time between two looks at what is awaited.
	Interval time.Duration
	// Progress gets a line for each change.
	Progress io.Writer
}

// Prepare deletes the programs that request addresses. It changes nothing if a pod has an address of a
// pool: another pod could get that address.
func (u Uninstall) Prepare(ctx context.Context) error {
	found := audit.NewCluster()
	err := u.Cluster.CiliumNodes(ctx, found.CiliumNodes)
	if err == nil {
		found.BridgePods, found.PodAddresses, err = u.Cluster.Pods(ctx)
	} else if apierrors.IsNotFound(err) { // a cluster without CiliumNodes has no pool
		err = nil
	}
	if err != nil {
		return err
	}
	if used := found.PodsInPools(); len(used) > 0 {
		return fmt.Errorf("%d addresses of the pools belong to pods, such as %s; expected none: drain the nodes, or move Cilium to another ipam mode (docs/install/bridge.md, Uninstall)",
			len(used), used[0])
	}
	for _, part := range []string{"bridge", "network"} {
		if err := u.remove(ctx, u.Name+"-"+part); err != nil {
			return err
		}
	}
	return nil
}

// Finish waits until each node has released its addresses, deletes the daemon, and waits until its files are
// removed.
func (u Uninstall) Finish(ctx context.Context) error {
	released := func(p *corev1.Pod) bool {
		has := func(c corev1.Container) bool { return c.Name == ReleaseContainer }
		return !slices.ContainsFunc(p.Spec.InitContainers, has) && isReady(p) || // an installation of the network alone
			slices.ContainsFunc(p.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
				return s.Name == ReleaseContainer && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
			})
	}
	if err := u.await(ctx, "release its addresses", released); err != nil || u.KeepDaemon {
		return err
	}
	if err := u.remove(ctx, u.Name); err != nil {
		return err
	}
	return u.await(ctx, "remove the daemon's files", isReady)
}

// remove deletes a DaemonSet, if it exists, and waits until its pods are gone.
func (u Uninstall) remove(ctx context.Context, name string) error {
	foreground := metav1.DeletePropagationForeground
	return u.poll(ctx, func(ctx context.Context) (string, bool, error) {
		state := "delete DaemonSet " + name
		err := u.Cluster.apps.DaemonSets(u.Namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground})
		switch {
		case apierrors.IsNotFound(err):
			return state, true, nil
		case err != nil:
			err = fmt.Errorf("%s: %w", state, err)
		}
		return state, false, err
	})
}

// await waits until a pod of NAME-uninstall on each node is done with a step.
func (u Uninstall) await(ctx context.Context, step string, done func(*corev1.Pod) bool) error {
	name := u.Name + "-uninstall"
	return u.poll(ctx, func(ctx context.Context) (string, bool, error) {
		set, err := u.Cluster.apps.DaemonSets(u.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", false, fmt.Errorf("DaemonSet %s: %w", name, err)
		}
		pods, err := u.Cluster.core.Pods(u.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
		if err != nil {
			return "", false, describe("pods", err)
		}
		var pending []string
		for i := range pods.Items {
			if p := &pods.Items[i]; !done(p) {
				pending = append(pending, p.Spec.NodeName)
			}
		}
		slices.Sort(pending)
		count := len(pods.Items) - len(pending)
		state := fmt.Sprintf("%d of %d nodes: %s", count, set.Status.DesiredNumberScheduled, step)
		if len(pending) > 0 {
			state += "; not yet " + strings.Join(pending, ", ")
		}
		return state, set.Status.ObservedGeneration >= set.Generation && len(pending) == 0 && count >= int(set.Status.DesiredNumberScheduled), nil
	})
}

// poll looks until it is done, and prints each new state. After an error it looks again, because Helm runs a step once,
// unless rights or an object are missing.
func (u Uninstall) poll(ctx context.Context, look func(context.Context) (state string, done bool, err error)) error {
	last := ""
	return wait.PollUntilContextCancel(ctx, u.Interval, true, func(ctx context.Context) (bool, error) {
		state, done, err := look(ctx)
		if ctx.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return false, err
		}
		if err != nil {
			state = err.Error()
		}
		if state != last {
			fmt.Fprintln(u.Progress, state)
			last = state
		}
		return done, nil
	})
}
