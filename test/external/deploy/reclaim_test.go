package deploy

import (
	"reflect"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The plugin gets the options, the configuration and the executables of the daemon.
func TestReclaimAsDaemon(t *testing.T) {
	all := kustomized(t, "reclaim")
	d := deployed{all: all, pod: named[*batchv1.CronJob](t, all, "delegated-ipam-reclaim").Spec.JobTemplate.Spec.Template.Spec}
	daemon := render(t, installation{objects: func(*testing.T) []runtime.Object { return d.all }, daemonSet: "delegated-ipam"})
	c := container(t, d.pod.InitContainers, "reclaim")
	for _, m := range c.VolumeMounts {
		if m.Name == "lost" {
			continue
		}
		if got, want := d.volume(t, m.Name), daemon.volume(t, m.Name); !reflect.DeepEqual(got, want) || got.ConfigMap != nil && !suffix.MatchString(got.ConfigMap.Name) {
			t.Errorf("the volume %s is %v; want that of the daemon, %v", m.Name, got, want)
		}
	}
	for _, m := range daemon.daemon.VolumeMounts {
		if m.ReadOnly && m.Name != "machine-id" && !slices.ContainsFunc(c.VolumeMounts, func(own corev1.VolumeMount) bool { return reflect.DeepEqual(own, m) }) {
			t.Errorf("reclaim lacks the mount %v of the daemon", m)
		}
	}
	if !reflect.DeepEqual(c.SecurityContext, daemon.daemon.SecurityContext) || d.pod.HostNetwork != daemon.pod.HostNetwork || c.Image != daemon.daemon.Image {
		t.Errorf("user, namespace or image differ from those of the daemon")
	}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == "K8S_NODE_NAME" && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
	}) {
		t.Errorf("the environment is %v; want the name of the node, which is not reclaimed", c.Env)
	}
}
