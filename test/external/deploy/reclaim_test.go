package deploy

import (
	"reflect"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// reclaim returns the CronJob and its pod, as an installation with the DaemonSet of the daemon.
func reclaim(t *testing.T) (*batchv1.CronJob, deployed) {
	t.Helper()
	all := kustomized(t, "reclaim")
	job := named[*batchv1.CronJob](t, all, "delegated-ipam-reclaim")
	return job, deployed{all: all, pod: job.Spec.JobTemplate.Spec.Template.Spec}
}

// The list is written before it is read, and two runs never overlap.
func TestReclaimJob(t *testing.T) {
	job, d := reclaim(t)
	var commands []string
	for _, c := range slices.Concat(d.pod.InitContainers, d.pod.Containers) {
		commands = append(commands, c.Command[0]+" "+c.Name)
	}
	if want := []string{"delegated-ipam-bridge lost-nodes", "delegated-ipam reclaim", "delegated-ipam-bridge forget"}; !slices.Equal(commands, want) {
		t.Errorf("the containers are %q; want %q", commands, want)
	}
	// Both compare the nodes with the same store.
	first, last := d.pod.InitContainers[0].Args, d.pod.Containers[0].Args
	for _, arg := range last[1:] {
		if !slices.Contains(first, arg) {
			t.Errorf("forget has %s; want the options of lost-nodes, %q", arg, first)
		}
	}
	if !slices.Contains(last, "--whereabouts-namespace=kube-system") {
		t.Errorf("forget has %q; want the namespace of the IPPools", last)
	}
	if job.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent || *job.Spec.JobTemplate.Spec.BackoffLimit != 0 || d.pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the policies are %s, %d and %s", job.Spec.ConcurrencyPolicy, *job.Spec.JobTemplate.Spec.BackoffLimit, d.pod.RestartPolicy)
	}
}

// The container that runs plugins gets no token, and the others nothing of the host.
func TestReclaimToken(t *testing.T) {
	_, d := reclaim(t)
	if d.pod.AutomountServiceAccountToken == nil || *d.pod.AutomountServiceAccountToken || d.pod.ServiceAccountName != "delegated-ipam-reclaim" {
		t.Errorf("each container gets a token of %s", d.pod.ServiceAccountName)
	}
	const lost = "/lost"
	for _, c := range slices.Concat(d.pod.InitContainers, d.pod.Containers) {
		want := map[string]mount{lost: {"nothing", false}, tokenPath: {"another volume", true}}
		if c.Name == "reclaim" {
			want = map[string]mount{
				lost: {"nothing", false}, "/etc/delegated-ipam/options": {"ConfigMap", true}, "/etc/delegated-ipam/conflist": {"ConfigMap", true},
				"/etc/cni/net.d": {"/etc/cni/net.d", true}, "/opt/cni/bin": {"/opt/cni/bin", true},
			}
		}
		wantMounts(t, d, c, want)
		wantNoPrivileges(t, c)
		if c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s has the limits %v", c.Name, c.Resources.Limits)
		}
	}
}

// The plugin gets the options, the configuration and the executables of the daemon.
func TestReclaimAsDaemon(t *testing.T) {
	_, d := reclaim(t)
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
	if !reflect.DeepEqual(c.SecurityContext, daemon.daemon.SecurityContext) || d.pod.HostNetwork != daemon.pod.HostNetwork || c.Image != daemon.daemon.Image {
		t.Errorf("user, namespace or image differ from those of the daemon")
	}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == "K8S_NODE_NAME" && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
	}) {
		t.Errorf("the environment is %v; want the name of the node, which is not reclaimed", c.Env)
	}
}

// It lists Nodes and CiliumNodes, and writes one ConfigMap, which is not created by it.
func TestReclaimRights(t *testing.T) {
	_, d := reclaim(t)
	cluster := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}},
		{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumnodes"}, Verbs: []string{"list"}},
		{APIGroups: []string{"whereabouts.cni.cncf.io"}, Resources: []string{"ippools"}, Verbs: []string{"list"}},
	}
	if got := named[*rbacv1.ClusterRole](t, d.all, "delegated-ipam-reclaim").Rules; !equality.Semantic.DeepEqual(got, cluster) {
		t.Errorf("the rules are %v; want %v", got, cluster)
	}
	memory := named[*corev1.ConfigMap](t, d.all, "delegated-ipam-nodes")
	own := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{memory.Name}, Verbs: []string{"get", "update"}}}
	if got := named[*rbacv1.Role](t, d.all, "delegated-ipam-reclaim"); !equality.Semantic.DeepEqual(got.Rules, own) || got.Namespace != memory.Namespace {
		t.Errorf("the rules are %v; want %v", got.Rules, own)
	}
	if memory.Data != nil {
		t.Errorf("the ConfigMap has %v; a second apply would replace what was remembered", memory.Data)
	}
}
