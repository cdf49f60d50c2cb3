package deploy

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// bridge returns the pod of the bridge and its container.
func bridge(t *testing.T) (corev1.PodSpec, corev1.Container) {
	t.Helper()
	pod := named[*appsv1.DaemonSet](t, kustomized(t, "bridge"), "delegated-ipam-bridge").Spec.Template.Spec
	return pod, container(t, pod.Containers, "bridge")
}

func TestBridgeSecurityContext(t *testing.T) {
	_, c := bridge(t)
	s := c.SecurityContext
	if s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 {
		t.Errorf("the security context is %v; want a user other than root", s)
	}
	if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0 ||
		s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the security context is %v; want no privileges", s)
	}
	if *s.RunAsGroup != group {
		t.Errorf("the group is %d; want %d", *s.RunAsGroup, group)
	}
	each(t, func(t *testing.T, d deployed) {
		if !d.bridge {
			t.Skip("the installation lacks the bridge")
		}
		// The socket gets the group of the process that creates it.
		if got := *d.sidecar.SecurityContext.RunAsGroup; got != group {
			t.Errorf("the socket has group %d, and the bridge %d", got, group)
		}
		if got := d.files(t, "/etc/delegated-ipam/options")["allow-gids"]; got != strconv.Itoa(group) {
			t.Errorf("allow-gids is %q, and the bridge has group %d", got, group)
		}
	})
}

func TestBridgeMounts(t *testing.T) {
	pod, c := bridge(t)
	d := deployed{pod: pod}
	got := d.mounts(t, c)
	if want := (mount{"/var/run/cilium", true}); len(got) != 1 || got["/var/run/cilium"] != want {
		t.Errorf("the mounts are %v; want %v", got, want)
	}
	if len(pod.Containers) != 1 {
		t.Errorf("the pod has %d containers; want 1", len(pod.Containers))
	}
}

func TestBridgePlacement(t *testing.T) {
	pod, c := bridge(t)
	wantOnEachNode(t, pod, c)
}

// The probes are served at the address of the metrics, which internal/bridge tests.
func TestBridgeProbes(t *testing.T) {
	_, c := bridge(t)
	for path, probe := range map[string]*corev1.Probe{"/readyz": c.ReadinessProbe, "/healthz": c.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			t.Errorf("the probe of %s is %v; want an HTTP GET", path, probe)
			continue
		}
		get := probe.HTTPGet
		// With the host's network and without a host the kubelet would use the node's address.
		if want := "--metrics-address=" + net.JoinHostPort(get.Host, get.Port.String()); !slices.Contains(c.Args, want) || get.Path != path {
			t.Errorf("the probe is for %s%s, and the arguments are %v", get.Host, get.Path, c.Args)
		}
	}
	wantReplaced(t, c.LivenessProbe)
}

func TestRBAC(t *testing.T) {
	for name, objects := range map[string][]runtime.Object{
		"kustomization":     kustomized(t, "with-bridge"),
		"another namespace": overlay(t, "with-bridge", "namespace: cni"),
		"chart":             daemonSets(t),
	} {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{"delegated-ipam-bridge", "delegated-ipam-network"} {
				wantRBAC(t, objects, name)
			}
		})
	}
}

// wantRBAC wants the service account of a DaemonSet, in its namespace, to have the cluster role of
// the same name, and no other role: a Role in the namespace of the Events would be moved by a
// kustomization with a namespace.
func wantRBAC(t *testing.T, all []runtime.Object, name string) {
	t.Helper()
	set := named[*appsv1.DaemonSet](t, all, name)
	pod := set.Spec.Template.Spec
	if pod.ServiceAccountName != name || pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken {
		t.Errorf("the service account is %q, its token is mounted: %v", pod.ServiceAccountName, pod.AutomountServiceAccountToken)
	}
	account := named[*corev1.ServiceAccount](t, all, name)
	if account.Namespace != set.Namespace {
		t.Errorf("the service account is in %s, the DaemonSet in %s", account.Namespace, set.Namespace)
	}
	binding := named[*rbacv1.ClusterRoleBinding](t, all, name)
	want := rbacv1.Subject{Kind: "ServiceAccount", Name: name, Namespace: set.Namespace}
	if len(binding.Subjects) != 1 || binding.Subjects[0] != want {
		t.Errorf("the subjects are %v; want %v", binding.Subjects, want)
	}
	rules := named[*rbacv1.ClusterRole](t, all, binding.RoleRef.Name).Rules
	if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Equal(r.Resources, []string{"events"}) && slices.Equal(r.Verbs, []string{"create", "patch"})
	}) {
		t.Errorf("the rules %v lack Events", rules)
	}
	for _, o := range all {
		if r, is := o.(*rbacv1.RoleBinding); is {
			t.Errorf("RoleBinding %s/%s", r.Namespace, r.Name)
		}
	}
}

// The kustomization without the watch of pods, as the docs have it.
func TestWithoutPodsRight(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operate/bridge.md")
	harness.Must(t, err)
	_, after, _ := strings.Cut(string(text), "```yaml\npatches:")
	patches, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("bridge.md has no patches")
	}
	all := overlay(t, "with-bridge", "patches:"+patches)
	for _, r := range named[*rbacv1.ClusterRole](t, all, "delegated-ipam-bridge").Rules {
		if slices.Contains(r.Resources, "pods") {
			t.Errorf("the rule %v is left", r)
		}
	}
	args := named[*appsv1.DaemonSet](t, all, "delegated-ipam-bridge").Spec.Template.Spec.Containers[0].Args
	if !slices.Contains(args, "--watch-pods=false") {
		t.Errorf("the arguments are %q", args)
	}
}

// A rolling update must not run two pods on a node.
func TestUpdateStrategy(t *testing.T) {
	for _, name := range []string{"delegated-ipam", "delegated-ipam-bridge", "delegated-ipam-network"} {
		u := named[*appsv1.DaemonSet](t, kustomized(t, "with-bridge"), name).Spec.UpdateStrategy
		if u.Type != appsv1.RollingUpdateDaemonSetStrategyType || u.RollingUpdate.MaxSurge.IntValue() != 0 || u.RollingUpdate.MaxUnavailable.IntValue() < 1 {
			t.Errorf("the update strategy of %s is %v", name, u)
		}
	}
}

// These are the names from "make image".
func TestImageNames(t *testing.T) {
	_, c := bridge(t)
	if c.Image != "delegated-ipam-bridge:local" {
		t.Errorf("the image of the bridge is %s", c.Image)
	}
	each(t, func(t *testing.T, d deployed) {
		if d.sidecar.Image != "delegated-ipam:local" {
			t.Errorf("the image of the sidecar is %s", d.sidecar.Image)
		}
	})
}
