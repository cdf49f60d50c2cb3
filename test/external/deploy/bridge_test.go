package deploy

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"

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

// template returns the template of the CNI configuration that the installation gives to
// delegated-ipam-network. With the chart of Cilium, a separate installation of our chart has it.
func (d deployed) template(t *testing.T) string {
	t.Helper()
	all := d.all
	if d.inChart() {
		all = daemonSets(t, "daemon.enabled=false")
	}
	return named[*corev1.ConfigMap](t, all, "delegated-ipam-network").Data["pods.conflist"]
}

// No configuration of a plugin that keeps its addresses on the node has a range for all nodes.
func TestNoCommonRange(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		if d.network != "" {
			file := "/etc/delegated-ipam/" + d.network + "/pods.conflist"
			if got := d.files(t, "/etc/delegated-ipam/options")["cni-conf-file"]; got != file {
				t.Errorf("cni-conf-file is %q; want %q", got, file)
			}
		}
		if d.network != "network" {
			return
		}
		text := d.template(t)
		if strings.Contains(text, "subnet") || strings.Count(text, `"${ranges}"`) != 1 {
			t.Errorf("the template is not for the node's own ranges:\n%s", text)
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("not JSON:\n%s", text)
		}
	})
}

// All installations with a template have the same one, and all with one configuration for all nodes
// have the same configuration, except for white space.
func TestSameNetwork(t *testing.T) {
	first := map[string]string{}
	count := map[string]int{}
	for _, i := range installations {
		if i.network == "" {
			continue
		}
		d := render(t, i)
		var text string
		switch i.network {
		case "network":
			text = d.template(t)
		case "conflist":
			text = d.files(t, "/etc/delegated-ipam/conflist")["pods.conflist"]
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(text)); err != nil {
			t.Fatalf("%s: %v:\n%s", i.name, err, text)
		}
		if count[i.network]++; count[i.network] == 1 {
			first[i.network] = compact.String()
		}
		if got := compact.String(); got != first[i.network] {
			t.Errorf("%s: the network is\n%s\nwant that of the other installations\n%s", i.name, got, first[i.network])
		}
	}
	if want := map[string]int{"network": 5, "conflist": 2}; !maps.Equal(count, want) {
		t.Errorf("installations with a template and with a configuration for all nodes: %v; want %v", count, want)
	}
}

// It reads Nodes, and writes Events only.
func TestNetworkRights(t *testing.T) {
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
	if got := named[*rbacv1.ClusterRole](t, kustomized(t, "network"), "delegated-ipam-network").Rules; !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the rules are %v; want %v", got, want)
	}
}

// The audit reads, and no more.
func TestAuditRights(t *testing.T) {
	all := kustomized(t, "audit")
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumnodes"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"list"}},
	}
	if got := named[*rbacv1.ClusterRole](t, all, "delegated-ipam-audit").Rules; !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the rules are %v; want %v", got, want)
	}
	pod := named[*batchv1.CronJob](t, all, "delegated-ipam-audit").Spec.JobTemplate.Spec.Template.Spec
	if got := container(t, pod.Containers, "audit").Command; !slices.Equal(got, []string{"delegated-ipam-bridge", "audit"}) || pod.ServiceAccountName != "delegated-ipam-audit" {
		t.Errorf("%v as %s", got, pod.ServiceAccountName)
	}
}
