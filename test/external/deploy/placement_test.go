package deploy

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestTheSidecarRunsWhereAndAsLongAsTheAgentDoes(t *testing.T) {
	each(t, func(t *testing.T, d deployed) { runsOnEachNode(t, d.pod, d.sidecar) })
}

// runsOnEachNode wants of a pod that it comes to each node, is not evicted, and is
// there before the agent; and that its container is told the node's name.
func runsOnEachNode(t *testing.T, pod corev1.PodSpec, c corev1.Container) {
	t.Helper()
	if pod.PriorityClassName != "system-node-critical" {
		t.Errorf("its priority is %q", pod.PriorityClassName)
	}
	if !pod.HostNetwork {
		t.Error("it has a network of its own: it would wait for the agent, and a sidecar would not see another one")
	}
	if !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
		return t.Operator == corev1.TolerationOpExists && t.Key == "" && t.Effect == ""
	}) {
		t.Errorf("it tolerates %v, want everything", pod.Tolerations)
	}
	if got := pod.NodeSelector["kubernetes.io/os"]; got != "linux" {
		t.Errorf("it runs on %q", got)
	}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == "K8S_NODE_NAME" && e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
	}) {
		t.Error("it is not told its node's name")
	}
}
