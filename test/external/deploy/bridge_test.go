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

func TestTheBridgeIsNobodyAndTheSidecarAdmitsIt(t *testing.T) {
	_, c := bridge(t)
	s := c.SecurityContext
	if s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 {
		t.Errorf("it runs as %v", s)
	}
	if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0 ||
		s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("it has more rights than none: %v", s)
	}
	group := *s.RunAsGroup
	each(t, func(t *testing.T, d deployed) {
		if !d.bridge {
			t.Skip("without the bridge")
		}
		// The socket has the group of the process that makes it.
		if got := *d.sidecar.SecurityContext.RunAsGroup; got != group {
			t.Errorf("the socket's group is %d, the bridge's %d", got, group)
		}
		if got := d.files(t, "/etc/delegated-ipam/options")["allow-gids"]; got != strconv.FormatInt(group, 10) {
			t.Errorf("allow-gids is %q, and the bridge is in group %d", got, group)
		}
	})
}

func TestTheBridgeSeesNothingOfTheHostButTheSocketsDir(t *testing.T) {
	pod, c := bridge(t)
	d := deployed{pod: pod}
	got := d.mounts(t, c)
	if want := (mount{"/var/run/cilium", true}); len(got) != 1 || got["/var/run/cilium"] != want {
		t.Errorf("it mounts %v, want %v", got, want)
	}
	if len(pod.Containers) != 1 {
		t.Errorf("there are %d containers in its pod, want one", len(pod.Containers))
	}
}

func TestTheBridgeRunsWhereTheAgentDoes(t *testing.T) {
	pod, c := bridge(t)
	runsOnEachNode(t, pod, c)
}

// Its probes are answered where its metrics are, which pkg/bridge tries.
func TestTheProbesOfTheBridgeAskWhereItAnswers(t *testing.T) {
	_, c := bridge(t)
	for path, probe := range map[string]*corev1.Probe{"/readyz": c.ReadinessProbe, "/healthz": c.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			t.Errorf("%s: %v, want an HTTP GET", path, probe)
			continue
		}
		get := probe.HTTPGet
		// It has the host's network: without a host the kubelet would ask at the node's address.
		if want := "--metrics-address=" + net.JoinHostPort(get.Host, get.Port.String()); !slices.Contains(c.Args, want) || get.Path != path {
			t.Errorf("%s%s is asked for, and it is run with %v", get.Host, get.Path, c.Args)
		}
	}
}

func TestTheBridgeHasItsTokenAndItsRights(t *testing.T) {
	for _, directory := range []string{"bridge", "with-bridge"} {
		t.Run(directory, func(t *testing.T) { hasItsRights(t, kustomized(t, directory)) })
	}
}

func hasItsRights(t *testing.T, all []runtime.Object) {
	t.Helper()
	pod := named[*appsv1.DaemonSet](t, all, "delegated-ipam-bridge").Spec.Template.Spec
	if pod.ServiceAccountName != "delegated-ipam-bridge" || pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken {
		t.Errorf("account %q, token %v", pod.ServiceAccountName, pod.AutomountServiceAccountToken)
	}
	account := named[*corev1.ServiceAccount](t, all, pod.ServiceAccountName)
	want := rbacv1.Subject{Kind: "ServiceAccount", Name: account.Name, Namespace: "kube-system"}
	nodes := named[*rbacv1.ClusterRoleBinding](t, all, "delegated-ipam-bridge")
	events := named[*rbacv1.RoleBinding](t, all, "delegated-ipam-bridge-events")
	for _, subjects := range [][]rbacv1.Subject{nodes.Subjects, events.Subjects} {
		if len(subjects) != 1 || subjects[0] != want {
			t.Errorf("the rights are those of %v, want %v", subjects, want)
		}
	}
	named[*rbacv1.ClusterRole](t, all, nodes.RoleRef.Name)
	role := named[*rbacv1.Role](t, all, events.RoleRef.Name)
	// Events about a node lie there, whatever the namespace of the pod.
	if role.Namespace != "default" || events.Namespace != "default" {
		t.Errorf("the right to write Events is in %s and %s", role.Namespace, events.Namespace)
	}
}

// A rolling update never has two of them on a node.
func TestNeverTwoOnANode(t *testing.T) {
	for _, name := range []string{"delegated-ipam", "delegated-ipam-bridge"} {
		u := named[*appsv1.DaemonSet](t, kustomized(t, "with-bridge"), name).Spec.UpdateStrategy
		if u.Type != appsv1.RollingUpdateDaemonSetStrategyType || u.RollingUpdate.MaxSurge.IntValue() != 0 || u.RollingUpdate.MaxUnavailable.IntValue() < 1 {
			t.Errorf("%s is updated by %v", name, u)
		}
	}
}

// The pool of both ways is the same one.
func TestTheNetworkOfTheBridgeIsTheSameInChartAndDaemonSet(t *testing.T) {
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

// "make image" gives them these names.
func TestTheImagesAreThoseThatAreBuilt(t *testing.T) {
	_, c := bridge(t)
	if c.Image != "delegated-ipam-bridge:local" {
		t.Errorf("the bridge's image is %s", c.Image)
	}
	each(t, func(t *testing.T, d deployed) {
		if d.sidecar.Image != "delegated-ipam:local" {
			t.Errorf("the sidecar's image is %s", d.sidecar.Image)
		}
	})
}
