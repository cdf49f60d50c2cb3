package whereabouts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// account is the service account of whereabouts' own manifest.
	account = "kube-system:whereabouts"
	// networkName is the name of the CNI network.
	networkName = "pods"
	// ipv4Range and ipv6Range are the ranges of each namespace.
	ipv4Range, ipv6Range = "10.15.0.0/24", "fd00:15::/112"
)

// testbed is a cluster in which whereabouts is installed.
type testbed struct {
	*cluster.Cluster
	// built is the output directory of build.sh: bin, crds, install.
	built string
}

// newTestbed starts the cluster with whereabouts' CRDs and RBAC rules. It skips the test outside
// the namespaces of run.sh.
func newTestbed(t *testing.T) *testbed {
	t.Helper()
	if !cluster.Namespaced() {
		t.Skip("the test needs root, etcd, kube-apiserver and separate namespaces; run 'make plugin-test'")
	}
	tb := &testbed{built: cluster.MustEnv(t, "PLUGIN_TEST_DIR", "plugin-test")}
	dir := filepath.Join(tb.built, "run")
	harness.Must(t, os.RemoveAll(dir))
	harness.Must(t, os.MkdirAll(dir, 0o755))
	tb.Cluster = cluster.Start(t, cluster.Config{
		Dir:             dir,
		APIServer:       cluster.MustEnv(t, "PLUGIN_TEST_APISERVER", "plugin-test"),
		Host:            cluster.Host,
		ServiceAccounts: []string{account, reclaimAccount},
	})
	tb.CreateKinds(t, filepath.Join(tb.built, "crds"))
	tb.Apply(t, filepath.Join(tb.built, "install", "daemonset-install.yaml"))
	return tb
}

// namespace is a Kubernetes namespace with the IPPools of one case.
type namespace struct {
	*testbed
	name string
	// flatFile is whereabouts.conf.
	flatFile string
}

// newNamespace creates the namespace of a case, and the files with which whereabouts finds it.
func (tb *testbed) newNamespace(t *testing.T) *namespace {
	t.Helper()
	object := cluster.Object("v1", "Namespace", "")
	object.SetGenerateName("case-")
	created, err := tb.Resource("", "v1", "namespaces").Create(t.Context(), object, metav1.CreateOptions{})
	harness.Must(t, err)
	ns := &namespace{testbed: tb, name: created.GetName(), flatFile: filepath.Join(t.TempDir(), "whereabouts.conf")}
	// As whereabouts' install script writes it.
	conf := asJSON(t, map[string]any{
		"datastore":  "kubernetes",
		"kubernetes": map[string]any{"kubeconfig": tb.WriteKubeconfig(t, ns.name, account, ns.name)},
	})
	harness.Must(t, os.WriteFile(ns.flatFile, conf, 0o600))
	return ns
}

// ipam returns the ipam section of a CNI configuration with a range for each subnet.
func (ns *namespace) ipam(subnets ...string) map[string]any {
	var ranges []map[string]string
	for _, subnet := range subnets {
		ranges = append(ranges, map[string]string{"range": subnet})
	}
	return map[string]any{"type": "whereabouts", "configuration_path": ns.flatFile, "ipRanges": ranges}
}

// newNode returns a node with whereabouts as the IPAM plugin of its network. At the end of the case
// the list of its sidecar must equal the IPPools of the namespace.
func (ns *namespace) newNode(t *testing.T, subnets ...string) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	binary, err := os.ReadFile(filepath.Join(ns.built, "bin", "whereabouts"))
	harness.Must(t, err)
	harness.WriteProgram(t, filepath.Join(n.BinDir, "whereabouts"), binary)
	n.WriteNetwork(t, "05-pods", harness.Network{Name: networkName, CNIVersion: "1.0.0", Plugin: "whereabouts", IPAM: ns.ipam(subnets...)})
	n.Store = ns.reservations
	n.Flags = []string{"--accept-unsafe-plugin"}
	if !strings.Contains(strings.Join(subnets, " "), ":") {
		n.Flags = append(n.Flags, "--enable-ipv6=false")
	}
	return n
}

func asJSON(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	harness.Must(t, err)
	return text
}
