// Package benchbridge measures the bridge with many nodes: real bridges over a real kube-apiserver and
// etcd, with imitated agents, kubelets and plugins. "make bench-bridge" builds the programs, runs the
// cases and prints a table; plain "go test" skips them. test/README.md describes the real and the
// imitated parts.
package benchbridge

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/benchpage"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	// The service accounts of the bridges, as in deploy/, and of the operator.
	bridgeAccount   = "kube-system:delegated-ipam-bridge"
	operatorAccount = "kube-system:cilium-operator"
)

type bench struct {
	*cluster.Cluster
	dir string
	// bridge is the path of delegated-ipam-bridge; operator is the path of the program with
	// cilium-operator's allocation logic, empty for none.
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
	cluster.SkipUnless(t, "bench-bridge")
	env := func(name string) string { return cluster.MustEnv(t, name, "bench-bridge") }
	b := &bench{dir: env("BENCH_BRIDGE_DIR"), bridge: env("BENCH_BRIDGE_BIN"), operator: os.Getenv("BENCH_BRIDGE_OPERATOR")}
	var err error
	b.nodes, err = strconv.Atoi(cmp.Or(os.Getenv("BENCH_BRIDGE_NODES"), "20"))
	check.Must(t, err)
	check.Must(t, os.RemoveAll(b.dir))
	machine, err := benchpage.Machine(b.dir)
	check.Must(t, err)
	b.report = &report{machine, map[supplier]map[string][]row{ownRange: {}, sharedRange: {}, operator: {}}}
	policy := filepath.Join(b.dir, "audit-policy.yaml")
	check.Must(t, os.WriteFile(policy, []byte(auditPolicy), 0o644))
	b.Cluster = cluster.Start(t, cluster.Config{
		Dir: b.dir, APIServer: env("BENCH_BRIDGE_APISERVER"), Host: cluster.Host,
		ServiceAccounts: []string{bridgeAccount, operatorAccount},
		Flags:           []string{"--audit-policy-file=" + policy, "--audit-log-path=" + b.auditLog()},
	})
	b.CreateKinds(t, env("BENCH_BRIDGE_CRDS"))
	b.bridgeKubeconfig = b.WriteKubeconfig(t, "bridge", bridgeAccount, "default")
	b.operatorKubeconfig = b.WriteKubeconfig(t, "operator", operatorAccount, "default")
	b.api, err = clientcmd.BuildConfigFromFlags("", filepath.Join(b.dir, "admin.kubeconfig"))
	check.Must(t, err)
	b.api.QPS, b.api.WarningHandler = -1, rest.NoWarnings{}
	b.objects, err = dynamic.NewForConfig(b.api)
	check.Must(t, err)
	b.typed, err = kubernetes.NewForConfig(b.api)
	check.Must(t, err)
	b.Apply(t, filepath.Join(env("BENCH_BRIDGE_ROOT"), "deploy/kubernetes/base/bridge/rbac.yaml"))
	b.Bind(t, "cluster-admin", operatorAccount) // its rights are not measured
	b.kubelet = newKubelet(t, b.typed)
	return b
}

func (b *bench) auditLog() string { return filepath.Join(b.dir, "audit.log") }

// byAgents selects the requests of agents, bySuppliers those of bridges and the operator.
func byAgents(r request) bool    { return r.User.Username == "admin" }
func bySuppliers(r request) bool { return !byAgents(r) }

// requests returns the requests about nodes since a time and before another one.
func (b *bench) requests(t *testing.T, by func(request) bool, since, until time.Time, nodes ...*node) []request {
	t.Helper()
	all, err := readAudit(b.auditLog(), since)
	check.Must(t, err)
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.name] = true
	}
	return slices.DeleteFunc(all, func(r request) bool { return !by(r) || !r.about(names) || !r.Received.Before(until) })
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

func (b *bench) finish(t *testing.T) {
	text := b.report.markdown()
	fmt.Print("\n", text)
	check.Must(t, os.WriteFile(filepath.Join(b.dir, "table.md"), []byte(text), 0o644))
}

type benchCase struct {
	name string
	// of are the suppliers that it measures.
	of      []supplier
	measure func(*testing.T, *bench, supplier) []row
}

// cases have the rows of docs/operate/bridge.md, "Sizing". The scenarios of internal/bridge have what is not a matter of load.
func cases() []benchCase {
	churnWith := func(watermark int) func(*testing.T, *bench, supplier) []row {
		return func(t *testing.T, b *bench, s supplier) []row { return churn(t, b, s, watermark) }
	}
	all := []supplier{ownRange, sharedRange, operator}
	return []benchCase{
		{"burst", all, burst},
		// A node with its own range has nothing to publish after an outage, and no excess.
		{"outage", []supplier{sharedRange}, outage},
		{"churn", all, churnWith(watermark)},
		{"churn without a watermark", []supplier{sharedRange, operator}, churnWith(0)},
	}
}

func (b *bench) measure(t *testing.T, s supplier) {
	for _, c := range cases() {
		if !slices.Contains(c.of, s) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			rows := c.measure(t, b, s)
			for _, r := range rows {
				t.Logf("%+v", r)
			}
			b.report.rows[s][c.name] = rows
		})
	}
}

type supplier string

const (
	// ownRange: a bridge on each node, with a plugin whose range is the node's own.
	ownRange supplier = "own range"
	// sharedRange: a bridge on each node, with a plugin for the whole cluster.
	sharedRange supplier = "shared range"
	// operator: one process with cilium-operator's allocation logic, which takes the CiliumNodes whose
	// names begin with its prefix.
	operator supplier = "cilium-operator"
)

var prefixes = map[supplier]string{operator: "operator-", ownRange: "own-"}

// options returns the options of a node that this supplier serves. The operator reads its settings from
// the CiliumNode.
func (s supplier) options(o nodeOptions) nodeOptions {
	o.updateRate = cmp.Or(o.updateRate, time.Second)
	if o.ownRange = s == ownRange; s != operator {
		o.ipam = map[string]any{}
		return o
	}
	ipam := map[string]any{"min-allocate": int64(freeAddresses), "pre-allocate": int64(freeAddresses)}
	maps.Copy(ipam, o.ipam)
	o.ipam, o.withoutBridge = ipam, true
	return o
}

func (b *bench) startOperator(t *testing.T) {
	cluster.NewProgram(t, b.dir, "operator", nil, b.operator,
		"-kubeconfig", b.operatorKubeconfig, "-prefix", prefixes[operator], "-delay", pluginDelay.String(),
		"-release-delay", releaseDelay.String(),
	).MustStart(t)
}

type report struct {
	// Machine names the machine.
	Machine string

	// rows has the rows of each supplier, by the name of their case.
	rows map[supplier]map[string][]row
}

// row is one measurement of a case. Target is empty without a target; Verdict says if it is missed.
type row struct{ Case, What, Value, Target, Verdict string }

func verdict(reached bool) string {
	if reached {
		return ""
	}
	return ", **missed**"
}

// markdown returns the report as a table: a row with the name of each case, then its measurements, with a
// column for each supplier. The target is that of the bridge, with its own range where that was measured.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n\n", r.Machine)
	b.WriteString("| measurement | bridge, own range | bridge, shared range | cilium-operator | target |\n|---|---|---|---|---|\n")
	for _, c := range cases() {
		own, shared, theirs := r.rows[ownRange][c.name], r.rows[sharedRange][c.name], r.rows[operator][c.name]
		for i, of := range shared {
			if i < len(own) {
				of.Target, of.Verdict = own[i].Target, own[i].Verdict
			}
			if i == 0 {
				fmt.Fprintf(&b, "| **%s** |\n", of.Case)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", of.What, value(own, i), value(shared, i), value(theirs, i), of.Target+of.Verdict)
		}
	}
	return b.String()
}

func value(rows []row, i int) string {
	if i >= len(rows) {
		return ""
	}
	return rows[i].Value
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
