// Package benchbridge measures the bridge with many nodes: real bridges over a real kube-apiserver and
// etcd, with imitated agents, kubelets and plugins. "make bench-bridge" builds the programs, runs the
// cases and prints a table; plain "go test" skips them. test/README.md describes the real and the
// imitated parts.
package benchbridge

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/delegated-ipam/delegated-ipam/test/benchpage"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// The service accounts of the bridges, as in deploy/, and of the operator.
	bridgeAccount   = "kube-system:delegated-ipam-bridge"
	operatorAccount = "kube-system:cilium-operator"
	// target is the make target that sets the environment.
	target = "bench-bridge"
)

// bench is a cluster without nodes.
type bench struct {
	*cluster.Cluster
	dir string
	// bridge is the path of delegated-ipam-bridge; operator is the path of the program with
	// cilium-operator's
	// allocation logic, empty for none.
	bridge, operator string
	// bridgeKubeconfig and operatorKubeconfig are the files of the service accounts.
	bridgeKubeconfig, operatorKubeconfig string
	// nodes is the number of nodes of the cases with many.
	nodes int

	api     *rest.Config
	objects dynamic.Interface
	typed   kubernetes.Interface
	kubelet *kubelet
	report  *report
}

func ciliumNodes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}
}

// newBench starts the cluster. It skips the test outside the namespaces of run.sh.
func newBench(t *testing.T) *bench {
	t.Helper()
	if !cluster.Namespaced() {
		t.Skip("the benchmark needs kube-apiserver, separate namespaces and many minutes; run 'make bench-bridge'")
	}
	env := func(name string) string { return cluster.MustEnv(t, name, target) }
	b := &bench{dir: env("BENCH_BRIDGE_DIR"), bridge: env("BENCH_BRIDGE_BIN"), operator: os.Getenv("BENCH_BRIDGE_OPERATOR")}
	var err error
	b.nodes, err = strconv.Atoi(cmp.Or(os.Getenv("BENCH_BRIDGE_NODES"), "20"))
	harness.Must(t, err)
	harness.Must(t, os.RemoveAll(b.dir))
	machine, err := benchpage.Machine(b.dir)
	harness.Must(t, err)
	b.report = &report{Machine: machine}
	policy := filepath.Join(b.dir, "audit-policy.yaml")
	harness.Must(t, os.WriteFile(policy, []byte(auditPolicy), 0o644))
	b.Cluster = cluster.Start(t, cluster.Config{
		Dir: b.dir, APIServer: env("BENCH_BRIDGE_APISERVER"), Host: cluster.Host,
		ServiceAccounts: []string{bridgeAccount, operatorAccount},
		Flags:           []string{"--audit-policy-file=" + policy, "--audit-log-path=" + b.auditLog()},
	})
	b.CreateKinds(t, env("BENCH_BRIDGE_CRDS"))
	b.bridgeKubeconfig = b.WriteKubeconfig(t, "bridge", bridgeAccount, "default")
	b.operatorKubeconfig = b.WriteKubeconfig(t, "operator", operatorAccount, "default")
	b.api, err = clientcmd.BuildConfigFromFlags("", filepath.Join(b.dir, "admin.kubeconfig"))
	harness.Must(t, err)
	b.api.QPS, b.api.WarningHandler = -1, rest.NoWarnings{}
	b.objects, err = dynamic.NewForConfig(b.api)
	harness.Must(t, err)
	b.typed, err = kubernetes.NewForConfig(b.api)
	harness.Must(t, err)
	b.Apply(t, filepath.Join(env("BENCH_BRIDGE_ROOT"), "deploy/kubernetes/base/bridge/rbac.yaml"))
	b.bindOperator(t)
	b.kubelet = newKubelet(t, b.typed)
	return b
}

func (b *bench) auditLog() string { return filepath.Join(b.dir, "audit.log") }

// bindOperator grants the operator every right: its rights are not measured.
func (b *bench) bindOperator(t *testing.T) {
	t.Helper()
	_, err := b.typed.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "cilium-operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "system:serviceaccount:" + operatorAccount}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
}

// requests returns the requests about nodes since a time, and before another one unless that is zero.
func (b *bench) requests(t *testing.T, since, until time.Time, nodes ...*node) []request {
	t.Helper()
	all, err := readAudit(b.auditLog(), since)
	harness.Must(t, err)
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.name] = true
	}
	var selected []request
	for _, r := range all {
		if r.about(names) && (until.IsZero() || r.Received.Before(until)) {
			selected = append(selected, r)
		}
	}
	return selected
}

// TestBench runs the cases, first with the operator, if there is one, and then with bridges.
func TestBench(t *testing.T) {
	b := newBench(t)
	t.Cleanup(func() { b.finish(t) })
	if b.operator != "" {
		t.Run(string(operator), func(t *testing.T) {
			b.startOperator(t)
			b.measure(t, operator)
		})
	}
	for _, s := range []supplier{sharedRange, ownRange} {
		t.Run(string(s), func(t *testing.T) { b.measure(t, s) })
	}
}

// finish prints the table, and writes it to table.md.
func (b *bench) finish(t *testing.T) {
	text := b.report.markdown()
	fmt.Print("\n", text)
	harness.Must(t, os.WriteFile(filepath.Join(b.dir, "table.md"), []byte(text), 0o644))
}
