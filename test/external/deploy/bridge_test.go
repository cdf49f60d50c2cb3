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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

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

// The socket gets the group of the process that creates it, of which the bridge is a member.
func TestAllowedGroup(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		if got := d.files(t, "/etc/delegated-ipam/options")["allow-gids"]; d.bridge && got != strconv.FormatInt(*d.daemon.SecurityContext.RunAsGroup, 10) {
			t.Errorf("allow-gids is %q, and the socket has group %d", got, *d.daemon.SecurityContext.RunAsGroup)
		}
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
