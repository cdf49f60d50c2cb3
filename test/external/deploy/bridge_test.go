package deploy

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// pod returns the pod of a DaemonSet of the kustomization with all parts, and its only container.
func pod(t *testing.T, daemonSet string) (deployed, corev1.Container) {
	t.Helper()
	spec := named[*appsv1.DaemonSet](t, kustomized(t, "with-bridge"), daemonSet).Spec.Template.Spec
	if len(spec.Containers)+len(spec.InitContainers) != 1 {
		t.Errorf("%s has %d containers and %d before them; want one in all", daemonSet, len(spec.Containers), len(spec.InitContainers))
	}
	return deployed{pod: spec}, spec.Containers[0]
}

// wantNoPrivileges wants a container without privileges.
func wantNoPrivileges(t *testing.T, c corev1.Container) {
	t.Helper()
	s := c.SecurityContext
	if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0 {
		t.Errorf("the security context of %s is %v; want no privileges", c.Name, s)
	}
}

// wantMounts wants the mounts of a container, and no others.
func wantMounts(t *testing.T, d deployed, c corev1.Container, want map[string]mount) {
	t.Helper()
	if got := d.mounts(t, c); !maps.Equal(got, want) {
		t.Errorf("the mounts of %s are %v; want %v", c.Name, got, want)
	}
}

func TestBridgePod(t *testing.T) {
	d, c := pod(t, "delegated-ipam-bridge")
	wantOnEachNode(t, d.pod, c)
	wantReplaced(t, c.LivenessProbe)
	wantNoPrivileges(t, c)
	wantMounts(t, d, c, map[string]mount{"/var/run/delegated-ipam": {"/var/run/delegated-ipam", true}})
	s := c.SecurityContext
	if s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || *s.RunAsGroup != group {
		t.Errorf("the security context is %v; want a user other than root, of the group %d", s, group)
	}
	if s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the seccomp profile is %v", s.SeccompProfile)
	}
	if c.Image != "ghcr.io/delegated-ipam/delegated-ipam-bridge:local" { // the name from "make image"
		t.Errorf("the image of the bridge is %s", c.Image)
	}
	each(t, func(t *testing.T, d deployed) {
		// The socket gets the group of the process that creates it (TestContainer).
		if got := d.files(t, "/etc/delegated-ipam/options")["allow-gids"]; d.bridge && got != strconv.Itoa(group) {
			t.Errorf("allow-gids is %q, and the bridge has group %d", got, group)
		}
	})
}

// The token of delegated-ipam-network must not be visible to the daemon, which runs plugins.
func TestNetworkPod(t *testing.T) {
	d, c := pod(t, "delegated-ipam-network")
	wantOnEachNode(t, d.pod, c)
	wantReplaced(t, c.LivenessProbe)
	wantNoPrivileges(t, c)
	wantMounts(t, d, c, map[string]mount{
		"/etc/delegated-ipam/template": {"ConfigMap", true},
		"/run/delegated-ipam":          {"/run/delegated-ipam-network", false},
	})
}

// A DaemonSet has the rights of its service account also in another namespace: a Role in the namespace of
// the Events would be moved there.
func TestRBAC(t *testing.T) {
	all := overlay(t, "with-bridge", "namespace: cni")
	for _, name := range []string{"delegated-ipam-bridge", "delegated-ipam-network"} {
		pod := named[*appsv1.DaemonSet](t, all, name).Spec.Template.Spec
		if pod.ServiceAccountName != name || pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken {
			t.Errorf("the service account is %q, its token is mounted: %v", pod.ServiceAccountName, pod.AutomountServiceAccountToken)
		}
		binding := named[*rbacv1.ClusterRoleBinding](t, all, name)
		want := rbacv1.Subject{Kind: "ServiceAccount", Name: name, Namespace: "cni"}
		if account := named[*corev1.ServiceAccount](t, all, name); account.Namespace != want.Namespace || !slices.Equal(binding.Subjects, []rbacv1.Subject{want}) {
			t.Errorf("the service account is in %s, the subjects are %v; want %v", account.Namespace, binding.Subjects, want)
		}
		rules := named[*rbacv1.ClusterRole](t, all, binding.RoleRef.Name).Rules
		if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Equal(r.Resources, []string{"events"}) && slices.Equal(r.Verbs, []string{"create", "patch"})
		}) {
			t.Errorf("the rules %v lack Events", rules)
		}
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
	check.Must(t, err)
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
