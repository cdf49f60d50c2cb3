package deploy

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

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
