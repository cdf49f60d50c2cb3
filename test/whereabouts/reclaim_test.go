package whereabouts

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	bridge "github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam-bridge/cli"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// reclaimAccount is the service account of deploy/kubernetes/overlays/reclaim.
const reclaimAccount = "kube-system:delegated-ipam-reclaim"

// manifest has the CronJob, its account and its ConfigMap.
const manifest = "../../deploy/kubernetes/base/reclaim-job/reclaim.yaml"

// twoNodes returns two nodes of one cluster. Neither list equals the IPPools, which have both.
func (ns *namespace) twoNodes(t *testing.T, subnets ...string) (a, b *harness.Node) {
	t.Helper()
	a, b = ns.newNode(t, subnets...), ns.newNode(t, subnets...)
	a.Store, b.Store = nil, nil
	return a, b
}

func reclaim(t *testing.T, n *harness.Node, flags ...string) harness.CommandResult {
	t.Helper()
	return n.Command(t, append([]string{
		"reclaim", "--node-name=" + n.Name, "--cni-conf-dir=" + n.ConfDir, "--cni-bin-dir=" + n.BinDir, "--accept-unsafe-plugin",
	}, flags...)...)
}

func lose(t *testing.T, n *harness.Node, s *harness.Daemon) {
	t.Helper()
	s.Kill(t)
	n.WipeJournal(t)
}

func testReclaim(t *testing.T, ns *namespace) {
	a, b := ns.twoNodes(t, ipv4Range, ipv6Range)
	sb := b.Start(t)
	sb.AllocateFor(t, "router")
	sb.AllocateFor(t, "health")
	kept := ns.mustReservations(t)
	sa := a.Start(t)
	allocateAll(t, sa)
	all := ns.mustReservations(t)
	if len(all) != len(kept)+2*len(owners()) {
		t.Fatalf("the IPPools have %v; want the addresses of both nodes", all)
	}
	flags := []string{"--node=" + a.Name, "--owner=" + strings.Join(owners(), ",") + ",never-was,ciliumnode-0..3"}
	confirmed := append(flags, "--yes-the-node-is-gone="+a.Name)

	// Refused: its daemon runs, this node, not confirmed.
	for want, args := range map[string][]string{
		"runs on this machine":   confirmed,
		"is this node":           {"--node=" + b.Name, "--yes-the-node-is-gone=" + b.Name},
		"--yes-the-node-is-gone": flags,
	} {
		if out := reclaim(t, b, args...); out.ExitCode == 0 || !strings.Contains(out.Stderr, want) {
			t.Errorf("%q: ended with %d: %s; want %q", args, out.ExitCode, out.Stderr, want)
		}
	}
	lose(t, a, sa)
	if out := reclaim(t, b, append(flags, "--dry-run")...); out.ExitCode != 0 || strings.Count(out.Stdout, "would-release") != len(owners())+5 {
		t.Errorf("the dry run ended with %d: %s%s", out.ExitCode, out.Stdout, out.Stderr)
	}
	ns.wantUnchanged(t, all)

	if out := reclaim(t, b, confirmed...); out.ExitCode != 0 {
		t.Errorf("ended with %d: %s%s", out.ExitCode, out.Stdout, out.Stderr)
	}
	ns.wantUnchanged(t, kept)
	if got := ns.overlapping(t); len(got) != len(kept) {
		t.Errorf("the OverlappingRangeIPReservations are %q; want those of %v", got, kept)
	}
	// A new node of the same name allocates as any other.
	allocateAll(t, a.Start(t))
	if got := ns.mustReservations(t); len(got) != len(all) {
		t.Errorf("the IPPools have %v; want the addresses of the node that came back", got)
	}
}

func (tb *testbed) lostNodes(t *testing.T, flags ...string) (code int, output string) {
	t.Helper()
	kubeconfig := tb.WriteKubeconfig(t, "reclaim", reclaimAccount, "kube-system")
	var stdout, stderr strings.Builder
	code = bridge.Run(t.Context(), append([]string{"lost-nodes", "--kubeconfig=" + kubeconfig}, flags...), nil, &stdout, &stderr, "test")
	return code, stdout.String() + stderr.String()
}

// cronJob imitates the CronJob of deploy/kubernetes/overlays/reclaim, on the node n.
type cronJob struct {
	*namespace
	n *harness.Node
	// store are the flags that name the network, and the IPPools with which lost-nodes compares the nodes.
	store []string
}

// run runs its three containers. The error is the error of the last one; remembered are the nodes
// that the ConfigMap has then.
func (j cronJob) run(t *testing.T) (remembered []string, err error) {
	t.Helper()
	list, report := filepath.Join(j.n.Dir, "nodes.json"), filepath.Join(j.n.Dir, "report.json")
	j.age(t)
	if code, text := j.lostNodes(t, slices.Concat([]string{"--file=" + list, "--owners="}, j.store)...); code != 0 {
		t.Fatalf("lost-nodes ended with %d: %s", code, text)
	}
	if out := reclaim(t, j.n, "--from="+list, "--report="+report, "--yes"); out.ExitCode != 0 {
		t.Fatalf("reclaim ended with %d: %s", out.ExitCode, out.Stderr)
	}
	if code, text := j.lostNodes(t, slices.Concat([]string{"--forget=" + report, "--owners="}, j.store)...); code != 0 {
		err = errors.New(text)
	}
	return j.remembered(t), err
}

func (j cronJob) want(t *testing.T, names ...string) {
	t.Helper()
	slices.Sort(names)
	cluster.MustEventually(t, "the ConfigMap to have the nodes", time.Minute, func() error {
		if got, err := j.run(t); !slices.Equal(got, names) || err != nil {
			return fmt.Errorf("it has %q (%v); want %q", got, err, names)
		}
		return nil
	})
}

func testReclaimLostNodes(t *testing.T, ns *namespace) {
	a, b := ns.twoNodes(t, ipv4Range)
	ns.Apply(t, manifest)
	ns.createCiliumNodes(t)
	b.Start(t).AllocateFor(t, "ciliumnode-0")
	kept := ns.mustReservations(t)
	ns.createNode(t, b.Name, nil)
	job := cronJob{ns, b, []string{"--cni-networks=" + networkName}}
	compare := append(job.store, "--whereabouts-namespace="+ns.name)

	job.loseNode(t, a)
	job.want(t, b.Name)
	ns.wantUnchanged(t, kept)

	// whereabouts reports success and releases nothing: the store shows it.
	job.store = compare
	job.loseNode(t, a)
	all := ns.mustReservations(t)
	allow := forbidUpdates(ns, t, ipv4Range)
	cluster.MustEventually(t, "what remains to be reported", time.Minute, func() error {
		if _, err := job.run(t); err == nil || !strings.Contains(err.Error(), "the plugin's store still has") {
			return fmt.Errorf("got %w; want what remains", err)
		}
		return nil
	})
	ns.wantUnchanged(t, all)
	if got := job.remembered(t); !slices.Contains(got, a.Name) {
		t.Errorf("the ConfigMap has %q; want %s to be tried again", got, a.Name)
	}
	allow()
	job.want(t, b.Name)
	ns.wantUnchanged(t, kept)
}

// loseNode creates a node with three slots, runs the job, and loses the node.
func (j cronJob) loseNode(t *testing.T, n *harness.Node) {
	t.Helper()
	s := n.Start(t)
	pool := map[string]any{}
	for i := range 3 {
		owner := fmt.Sprintf("ciliumnode-%d", i)
		pool[s.AllocateFor(t, owner)[0]] = map[string]any{"resource": "delegated-ipam/" + owner}
	}
	all := j.mustReservations(t)
	j.createNode(t, n.Name, pool)
	j.want(t, n.Name, j.n.Name)
	j.wantUnchanged(t, all)
	lose(t, n, s)
	j.deleteNode(t, n.Name)
}

func (tb *testbed) createCiliumNodes(t *testing.T) {
	kind := cluster.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "ciliumnodes.cilium.io")
	kind.Object["spec"] = map[string]any{
		"group": "cilium.io", "scope": "Cluster",
		"names": map[string]any{"plural": "ciliumnodes", "singular": "ciliumnode", "kind": "CiliumNode", "listKind": "CiliumNodeList"},
		"versions": []any{map[string]any{
			"name": "v2", "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}},
	}
	check.Must(t, tb.Create(t.Context(), kind))
	cluster.MustEventually(t, "CiliumNodes to be served", time.Minute, func() error {
		_, err := tb.CiliumNodes().List(t.Context(), metav1.ListOptions{})
		return err
	})
}

func (tb *testbed) createNode(t *testing.T, name string, pool map[string]any) {
	t.Helper()
	ciliumNode := cluster.Object("cilium.io/v2", "CiliumNode", name)
	check.Must(t, unstructured.SetNestedMap(ciliumNode.Object, pool, "spec", "ipam", "pool"))
	check.Must(t, errors.Join(tb.Create(t.Context(), cluster.Object("v1", "Node", name)), tb.Create(t.Context(), ciliumNode)))
}

func (tb *testbed) deleteNode(t *testing.T, name string) {
	check.Must(t, tb.Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
	check.Must(t, tb.CiliumNodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func (tb *testbed) memory(t *testing.T) (*unstructured.Unstructured, map[string]string) {
	t.Helper()
	object, err := tb.Resource("", "v1", "configmaps").Namespace("kube-system").Get(t.Context(), "delegated-ipam-nodes", metav1.GetOptions{})
	check.Must(t, err)
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	check.Must(t, err)
	return object, data
}

func (tb *testbed) age(t *testing.T) {
	object, data := tb.memory(t)
	for name, text := range data {
		entry := map[string]any{}
		check.Must(t, json.Unmarshal([]byte(text), &entry))
		if entry["absentSince"] != nil {
			entry["absentSince"] = time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)
			data[name] = string(asJSON(t, entry))
		}
	}
	check.Must(t, unstructured.SetNestedStringMap(object.Object, data, "data"))
	_, err := tb.Resource("", "v1", "configmaps").Namespace("kube-system").Update(t.Context(), object, metav1.UpdateOptions{})
	check.Must(t, err)
}

func (tb *testbed) remembered(t *testing.T) []string {
	t.Helper()
	_, data := tb.memory(t)
	return slices.Sorted(maps.Keys(data))
}
