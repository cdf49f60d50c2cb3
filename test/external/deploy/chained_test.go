package deploy

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"helm.sh/helm/v3/pkg/cli/values"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// The agent that Cilium's chart configures takes its addresses from the pool, and leaves the routes of
// pods to the primary CNI.
func TestChainedValues(t *testing.T) {
	const name = "name-of-the-primary-network"
	configs := map[string]map[string]string{}
	var bridge []string
	ours, err := template(t, ourChart, newest, values.Options{ValueFiles: []string{ourChart + "/chained.yaml"}}, policyAPI)
	check.Must(t, err)
	for _, o := range append(ours, chart(t, newest, "../../../deploy/cilium/chained.yaml")...) {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			configs[o.Name] = o.Data
		case *appsv1.DaemonSet:
			if o.Name == "delegated-ipam-network" {
				t.Error("the renderer is installed")
			}
			if o.Name == "delegated-ipam-bridge" {
				bridge = o.Spec.Template.Spec.Containers[0].Args
			}
		}
	}
	for config, want := range map[string]map[string]string{
		"cilium-config": {
			"ipam": "crd", "cni-chaining-mode": "generic-veth", "cni-chaining-target": name, "cni-exclusive": "true",
			"enable-local-node-route": "false", "enable-endpoint-routes": "", "enable-ipv4-masquerade": "false",
		},
		"delegated-ipam": {"cni-network": name, "cni-conf-file": "", "owners": "ciliumnode-*"},
	} {
		for key, value := range want {
			if got := configs[config][key]; got != value {
				t.Errorf("%s: %s is %q; want %q", config, key, got, value)
			}
		}
	}
	for _, flag := range []string{"--min-allocate=3", "--max-allocate=3", "--pre-allocate=1", "--watch-pods=false"} {
		if !slices.Contains(bridge, flag) {
			t.Errorf("the bridge has %q; want %s", bridge, flag)
		}
	}
}
