package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/cli/values"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// ways has the plugin of each file of deploy/chart/ways.
var ways = map[string]string{
	"whereabouts": "whereabouts", "calico-ipam": "calico-ipam", "azure-ipam": "azure-ipam",
	"crio": "host-local", "kind": "host-local", "k3s": "host-local", "rke2": "host-local",
}

func way(t *testing.T, names ...string) []runtime.Object {
	t.Helper()
	var given values.Options
	for _, name := range names {
		given.ValueFiles = append(given.ValueFiles, ourChart+"/ways/"+name+".yaml")
	}
	all, err := template(t, ourChart, newest, given, policyAPI)
	check.Must(t, err)
	return all
}

// The daemon of each way serves with the mounts and options that TestValues shows.
func TestWays(t *testing.T) {
	files, err := filepath.Glob(ourChart + "/ways/*.yaml")
	check.Must(t, err)
	if len(files) != len(ways) {
		t.Errorf("the files are %v; want %d", files, len(ways))
	}
	for name, plugin := range ways {
		t.Run(name, func(t *testing.T) {
			d := render(t, installation{objects: func(t *testing.T) []runtime.Object { return way(t, name) }, daemonSet: "delegated-ipam"})
			serveWay(t, d, plugin, d.files(t, "/etc/delegated-ipam/options"))
		})
	}
	// RKE2 with calico-ipam takes both files.
	named[*corev1.ConfigMap](t, way(t, "rke2", "calico-ipam"), "delegated-ipam-conflist")
}

// serveWay starts the real daemon with the options and the configuration of a way, and allocates. A plugin for the
// whole cluster is the scripted one.
func serveWay(t *testing.T, d deployed, plugin string, options map[string]string) {
	t.Helper()
	n := harness.NewNode(t)
	const subnet = `"subnet": "10.15.0.0/24"`
	withRange := []string{`"type": "` + plugin + `"`, `"type": "` + plugin + `", ` + subnet}
	if plugin == "host-local" {
		withRange = []string{`"${ranges}"`, `[[{` + subnet + `}]], "dataDir": "` + n.StoreDir + `"`}
	}
	inTest := strings.NewReplacer(append(withRange, "/etc/delegated-ipam", n.Dir)...)
	if plugin == "host-local" {
		write(t, filepath.Join(n.Dir, "network"), map[string]string{filepath.Base(options["cni-conf-file"]): d.template(t)}, inTest)
	} else {
		n.InstallScripted(t, plugin)
		write(t, filepath.Join(n.Dir, "conflist"), d.files(t, "/etc/delegated-ipam/conflist"), inTest)
	}
	write(t, filepath.Join(n.Dir, "options"), options, inTest)
	var args []string
	for _, a := range d.daemon.Args {
		args = append(args, inTest.Replace(a))
	}
	s := n.Start(t, args...)
	if got := s.Allocate(t, harness.Request{Owner: "ciliumnode-0"}).Addresses(); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	if len(d.pod.InitContainers) == 0 {
		return
	}
	// The runtime passes the section of the same file.
	rendered, err := os.ReadFile(filepath.Join(n.Dir, "network", filepath.Base(options["cni-conf-file"])))
	check.Must(t, err)
	var list struct {
		Plugins []struct{ IPAM map[string]any }
	}
	check.Must(t, yaml.Unmarshal(rendered, &list))
	list.Plugins[0].IPAM["socket"], list.Plugins[0].IPAM["spool"] = n.Socket, n.Spool()
	pods := n.PodsThrough(t, "not-read", harness.IPv4Only())
	if out, err := pods.Call("ADD", "pod", map[string]any{"ipam": list.Plugins[0].IPAM}); err != nil || !strings.Contains(string(out), `"10.15.0.`) {
		t.Errorf("a pod got %s, %v", out, err)
	}
	if owner := s.List(t)[1].Owner; !strings.HasPrefix(owner, "cni/pod/") {
		t.Errorf("the address of the pod is of %s", owner)
	}
}

// On EKS nodes have no podCIDRs: what needs them is refused before the installation.
func TestEKS(t *testing.T) {
	for set, refused := range map[string]bool{
		"": true, "bridge.enabled=false": true, "network.template=x ${podCIDRs[0]}": true,
		"network.template=x ${annotations[example.com/range]}": false, "network.enabled=false": false,
	} {
		_, err := template(t, ourChart, "v1.33.5-eks-113cf36", values.Options{Values: []string{set}})
		if (err != nil) != refused || err != nil && !strings.Contains(err.Error(), "no podCIDRs") {
			t.Errorf("%s: error %v; want a refusal: %t", set, err, refused)
		}
	}
}

// The audit compares addresses with podCIDRs where the template has them, in "helm test", too.
func TestAuditOfOtherRanges(t *testing.T) {
	for set, shared := range map[string]bool{
		"": false, "network.enabled=false": true, "network.template=x ${podCIDRs[0]}": false, "network.template=x ${annotations[example.com/range]}": true,
	} {
		all := everything(t, "audit.enabled=true", set)
		job, _ := podOf(named[*batchv1.CronJob](t, all, "delegated-ipam-audit"))
		test, _ := podOf(named[*corev1.Pod](t, all, "delegated-ipam-test-cluster"))
		for _, pod := range []corev1.PodTemplateSpec{job, test} {
			if args := pod.Spec.Containers[0].Args; slices.Contains(args, "--shared-range") != shared {
				t.Errorf("%s: the arguments are %q; want --shared-range: %t", set, args, shared)
			}
		}
	}
}

// The cluster of kind has no network plugin, the range of Cilium's values, and one node: others need routes.
func TestKind(t *testing.T) {
	var cluster struct {
		Kind, APIVersion string
		Networking       struct {
			DisableDefaultCNI bool
			PodSubnet         string
		}
		Nodes []struct{ Role string }
	}
	text, err := os.ReadFile("../../../deploy/kind/cluster.yaml")
	check.Must(t, err)
	check.Must(t, yaml.UnmarshalStrict(text, &cluster))
	config := named[*corev1.ConfigMap](t, chart(t, newest, "../../../deploy/kind/cilium.yaml"), "cilium-config").Data
	if !cluster.Networking.DisableDefaultCNI || len(cluster.Nodes) != 1 || config["ipam"] != "crd" || config["ipv4-native-routing-cidr"] != cluster.Networking.PodSubnet {
		t.Errorf("the cluster is %+v; Cilium has the mode %s and the range %s", cluster, config["ipam"], config["ipv4-native-routing-cidr"])
	}
}

// Cilium's values for pods through the daemon are complete: a stock agent refuses the mode otherwise, or panics, and
// the CNI configuration is left alone.
func TestPodsInCilium(t *testing.T) {
	config := named[*corev1.ConfigMap](t, chart(t, newest, "../../../deploy/cilium/pods.yaml"), "cilium-config").Data
	for key, want := range map[string]string{
		"ipam": "delegated-plugin", "local-router-ipv4": "169.254.23.0", "enable-endpoint-health-checking": "false", "enable-envoy-config": "",
		"egress-masquerade-interfaces": "eth0", "enable-endpoint-routes": "true", "routing-mode": "native",
		"custom-cni-conf": "true", "cni-exclusive": "", "write-cni-conf-when-ready": "",
	} {
		if config[key] != want {
			t.Errorf("%s is %q; want %q", key, config[key], want)
		}
	}
}

// The agent that Cilium's chart configures takes its addresses from the pool, and leaves the routes of
// pods to the primary CNI. TestValues shows the values of our chart.
func TestChainedValues(t *testing.T) {
	config := named[*corev1.ConfigMap](t, chart(t, newest, "../../../deploy/cilium/chained.yaml"), "cilium-config").Data
	for key, want := range map[string]string{
		"ipam": "crd", "cni-chaining-mode": "generic-veth", "cni-chaining-target": "name-of-the-primary-network", "cni-exclusive": "true",
		"enable-local-node-route": "false", "enable-endpoint-routes": "", "enable-ipv4-masquerade": "false",
	} {
		if got := config[key]; got != want {
			t.Errorf("%s is %q; want %q", key, got, want)
		}
	}
}
