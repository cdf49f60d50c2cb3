package deploy

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPlacement(t *testing.T) {
	each(t, func(t *testing.T, d deployed) { wantOnEachNode(t, d.pod, d.sidecar) })
}

// wantOnEachNode wants a pod to be scheduled on each node, before the agent and without eviction, and
// its container to get the node's name.
func wantOnEachNode(t *testing.T, pod corev1.PodSpec, c corev1.Container) {
	t.Helper()
	if pod.PriorityClassName != "system-node-critical" {
		t.Errorf("the priority class is %q", pod.PriorityClassName)
	}
	if !pod.HostNetwork {
		t.Error("the pod lacks the host network: it would wait for the agent, and a sidecar would not find a second one")
	}
	if !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
		return t.Operator == corev1.TolerationOpExists && t.Key == "" && t.Effect == ""
	}) {
		t.Errorf("the tolerations are %v; want all taints tolerated", pod.Tolerations)
	}
	if got := pod.NodeSelector["kubernetes.io/os"]; got != "linux" {
		t.Errorf("the node selector is for %q; want linux", got)
	}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == "K8S_NODE_NAME" && e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
	}) {
		t.Error("the container does not get the node's name")
	}
}
