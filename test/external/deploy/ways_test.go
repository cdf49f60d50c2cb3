package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"helm.sh/helm/v3/pkg/cli/values"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// ways has what each file of deploy/chart/ways changes.
var ways = map[string]struct {
	// plugin is the type of the plugin, installed as a program unless it is host-local.
	plugin string
	// mounts are further ones of the daemon, or have another source; of one without a source there is none.
	mounts map[string]mount
	// options are those of the daemon, env its environment.
	options map[string]string
	env     []string
}{
	"whereabouts": {
		plugin: "whereabouts", env: []string{"NODENAME"},
		options: map[string]string{"accept-unsafe-plugin": "true", "plugin-env": "NODENAME", "cni-conf-file": "/etc/delegated-ipam/conflist/pods.conflist"},
	},
	"calico-ipam": {
		plugin: "calico-ipam", mounts: map[string]mount{"/var/run/calico": {"/var/run/calico", false}, "/var/lib/calico": {"/var/lib/calico", true}},
		options: map[string]string{"cni-conf-file": "/etc/delegated-ipam/conflist/pods.conflist"},
	},
	"azure-ipam": {
		plugin: "azure-ipam", mounts: map[string]mount{"/var/run/azure-vnet": {"/var/run/azure-vnet", false}},
		options: map[string]string{"cni-conf-file": "/etc/delegated-ipam/conflist/pods.conflist"},
	},
	"crio": {
		plugin:  "host-local",
		mounts:  map[string]mount{"/etc/delegated-ipam/network": {"/etc/cni/net.d", true}, "/var/run/netns": {"/var/run/netns", true}},
		options: map[string]string{"cni-conf-file": "/etc/delegated-ipam/network/05-cilium.conflist", "owners": "", "missing-netns-release-delay": "10m"},
	},
	"kind": {plugin: "host-local", mounts: map[string]mount{"/etc/machine-id": {}}},
	"k3s": {
		plugin: "host-local", options: map[string]string{"host-local": "embedded"},
		mounts: map[string]mount{"/etc/cni/net.d": {"/var/lib/rancher/k3s/agent/etc/cni/net.d", true}, "/opt/cni/bin": {"/var/lib/rancher/k3s/data/cni", true}},
	},
	"rke2": {plugin: "host-local"},
}

func way(t *testing.T, name string, set ...string) []runtime.Object {
	t.Helper()
	all, err := template(t, ourChart, newest, values.Options{ValueFiles: []string{ourChart + "/ways/" + name + ".yaml"}, Values: set}, policyAPI)
	check.Must(t, err)
	return all
}

// The daemon of each way has the mounts and options that its plugin needs, and serves with them.
func TestWays(t *testing.T) {
	files, err := filepath.Glob(ourChart + "/ways/*.yaml")
	check.Must(t, err)
	if len(files) != len(ways) {
		t.Errorf("the files are %v; want %d", files, len(ways))
	}
	usual := render(t, installation{objects: ofOurChart(), daemonSet: "delegated-ipam"})
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			d := render(t, installation{objects: func(t *testing.T) []runtime.Object { return way(t, name) }, daemonSet: "delegated-ipam"})
			want := usual.mounts(t, usual.daemon)
			maps.Copy(want, w.mounts)
			maps.DeleteFunc(want, func(_ string, m mount) bool { return m == mount{} })
			wantMounts(t, d, d.daemon, want)
			options := d.files(t, "/etc/delegated-ipam/options")
			for option, value := range w.options {
				if options[option] != value {
					t.Errorf("the option %s is %q; want %q", option, options[option], value)
				}
			}
			for _, env := range w.env {
				if !slices.ContainsFunc(d.daemon.Env, func(e corev1.EnvVar) bool { return e.Name == env }) {
					t.Errorf("the environment lacks %s", env)
				}
			}
			serveWay(t, d, w.plugin, options)
		})
	}
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

// The parts of a way fit together.
func TestWayParts(t *testing.T) {
	network := named[*appsv1.DaemonSet](t, way(t, "crio"), "delegated-ipam-network").Spec.Template.Spec
	if c := network.Containers[0]; !slices.Contains(c.Args, "--output=/run/delegated-ipam/05-cilium.conflist") {
		t.Errorf("the arguments of network are %v", c.Args)
	}
	wantMounts(t, deployed{pod: network}, network.Containers[0], map[string]mount{
		"/etc/delegated-ipam/template": {"ConfigMap", true}, "/run/delegated-ipam": {"/etc/cni/net.d", false},
	})
	removed := container(t, named[*appsv1.DaemonSet](t, way(t, "crio"), "delegated-ipam-uninstall").Spec.Template.Spec.InitContainers, "network")
	if !slices.Contains(removed.Command, "--output=/run/delegated-ipam/05-cilium.conflist") {
		t.Errorf("the command of the uninstallation is %v", removed.Command)
	}
	for _, name := range []string{"delegated-ipam-bridge", "delegated-ipam-network"} {
		c := named[*appsv1.DaemonSet](t, way(t, "rke2"), name).Spec.Template.Spec.Containers[0]
		if !slices.Contains(c.Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "127.0.0.1"}) || !slices.Contains(c.Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: "6443"}) {
			t.Errorf("the environment of %s is %v", name, c.Env)
		}
	}
	// RKE2 with calico-ipam takes both files.
	both, err := template(t, ourChart, newest, values.Options{ValueFiles: []string{ourChart + "/ways/rke2.yaml", ourChart + "/ways/calico-ipam.yaml"}})
	check.Must(t, err)
	named[*corev1.ConfigMap](t, both, "delegated-ipam-conflist")
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
