package deploy

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	group := *s.RunAsGroup
	each(t, func(t *testing.T, d deployed) {
		if !d.bridge {
			t.Skip("the installation lacks the bridge")
		}
		// The socket gets the group of the process that creates it.
		if got := *d.sidecar.SecurityContext.RunAsGroup; got != group {
			t.Errorf("the socket has group %d, and the bridge %d", got, group)
		}
		if got := d.files(t, "/etc/delegated-ipam/options")["allow-gids"]; got != strconv.FormatInt(group, 10) {
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

// The probes are served at the address of the metrics, which pkg/bridge tests.
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
}

func TestBridgeRBAC(t *testing.T) {
	for _, dir := range []string{"bridge", "with-bridge"} {
		t.Run(dir, func(t *testing.T) { wantRBAC(t, kustomized(t, dir)) })
	}
}

func wantRBAC(t *testing.T, all []runtime.Object) {
	t.Helper()
	pod := named[*appsv1.DaemonSet](t, all, "delegated-ipam-bridge").Spec.Template.Spec
	if pod.ServiceAccountName != "delegated-ipam-bridge" || pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken {
		t.Errorf("the service account is %q, its token is mounted: %v", pod.ServiceAccountName, pod.AutomountServiceAccountToken)
	}
	account := named[*corev1.ServiceAccount](t, all, pod.ServiceAccountName)
	want := rbacv1.Subject{Kind: "ServiceAccount", Name: account.Name, Namespace: "kube-system"}
	nodes := named[*rbacv1.ClusterRoleBinding](t, all, "delegated-ipam-bridge")
	events := named[*rbacv1.RoleBinding](t, all, "delegated-ipam-bridge-events")
	for _, subjects := range [][]rbacv1.Subject{nodes.Subjects, events.Subjects} {
		if len(subjects) != 1 || subjects[0] != want {
			t.Errorf("the subjects are %v; want %v", subjects, want)
		}
	}
	named[*rbacv1.ClusterRole](t, all, nodes.RoleRef.Name)
	role := named[*rbacv1.Role](t, all, events.RoleRef.Name)
	// Events about a node are in this namespace, whatever that of the pod.
	if role.Namespace != "default" || events.Namespace != "default" {
		t.Errorf("the role is in %s and its binding in %s; want default", role.Namespace, events.Namespace)
	}
}

// A rolling update must not run two pods on a node.
func TestUpdateStrategy(t *testing.T) {
	for _, name := range []string{"delegated-ipam", "delegated-ipam-bridge"} {
		u := named[*appsv1.DaemonSet](t, kustomized(t, "with-bridge"), name).Spec.UpdateStrategy
		if u.Type != appsv1.RollingUpdateDaemonSetStrategyType || u.RollingUpdate.MaxSurge.IntValue() != 0 || u.RollingUpdate.MaxUnavailable.IntValue() < 1 {
			t.Errorf("the update strategy of %s is %v", name, u)
		}
	}
}

// Both installations have the same network.
func TestBridgeNetwork(t *testing.T) {
	var networks []string
	for _, i := range installations {
		if i.bridge {
			d := render(t, i)
			networks = append(networks, strings.TrimSpace(d.files(t, "/etc/delegated-ipam/network")["pods.conflist"]))
		}
	}
	if len(networks) != 2 || networks[0] == "" || networks[0] != networks[1] {
		t.Errorf("the networks are %q", networks)
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
