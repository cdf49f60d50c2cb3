// Package audit tests the audit of a cluster with a real kube-apiserver (test/README.md).
package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

type result struct {
	code           int
	stdout, stderr string
}

// run runs the bridge's program with a kubeconfig, or without one with the service account of a pod.
func run(t *testing.T, kubeconfig string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(cluster.MustEnv(t, "AUDIT_TEST_BRIDGE", "audit-test"), args...)
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig}
	if kubeconfig == "" { // as in a pod
		cmd.Env = []string{"KUBERNETES_SERVICE_HOST=" + cluster.Host, "KUBERNETES_SERVICE_PORT=6443"}
	}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestAudit(t *testing.T) {
	tb := newTestbed(t)
	tb.createNodes(t)
	account := tb.WriteKubeconfig(t, "audit", accounts[0], "default")
	cluster.MustEventually(t, "the rights to be in effect", 5*time.Minute, func() error {
		if r := run(t, account, "audit"); r.code != 0 {
			return fmt.Errorf("exit code %d, %s%s", r.code, r.stdout, r.stderr)
		}
		return nil
	})

	t.Run("no finding", func(t *testing.T) {
		r := run(t, account, "audit")
		want := fmt.Sprintf("0 findings; read %d CiliumNodes (%d addresses in pools, %d used), %d Nodes and %d bridge pods\n",
			tb.count, tb.count*poolSize, tb.count*usedSize, tb.count, tb.count)
		if r.code != 0 || r.stdout != want {
			t.Errorf("exit code %d, printed %q; want %q", r.code, r.stdout, want)
		}
	})
	t.Run("holder", func(t *testing.T) {
		last := tb.count - 1
		r := run(t, account, "holder", address(last, 0))
		for _, want := range []string{"held", nodeName(last), "ciliumnode-0", "default/pod-0"} {
			if r.code != 0 || !strings.Contains(r.stdout, want) {
				t.Errorf("exit code %d, printed %q; want %s", r.code, r.stdout, want)
			}
		}
		if r := run(t, account, "holder", address(last, 250)); r.code != 4 || !strings.Contains(r.stdout, "of "+nodeName(last)) {
			t.Errorf("not held: exit code %d, printed %q; want 4 and the Node with this pod CIDR", r.code, r.stdout)
		}
	})
	t.Run("service account of a pod", func(t *testing.T) {
		const mount = "/var/run/secrets/kubernetes.io/serviceaccount" // run.sh has mounted /run
		check.Must(t, os.MkdirAll(mount, 0o755))
		certificate, err := os.ReadFile(filepath.Join(tb.dir, "api.crt"))
		check.Must(t, err)
		check.Must(t, os.WriteFile(filepath.Join(mount, "ca.crt"), certificate, 0o600))
		check.Must(t, os.WriteFile(filepath.Join(mount, "token"), []byte(accounts[0]), 0o600))
		if r := run(t, "", "audit"); r.code != 0 {
			t.Errorf("%+v; want exit code 0", r)
		}
	})
	t.Run("rights", tb.testRights)
	t.Run("expired pages", tb.testExpired)
	t.Run("findings", func(t *testing.T) { tb.testFindings(t, account) })
	t.Run("no API server", func(t *testing.T) {
		tb.APIServer.End(syscall.SIGKILL)
		if r := run(t, account, "audit"); r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "list CiliumNodes") {
			t.Errorf("%+v; want exit code 1 and no output", r)
		}
	})
}

func (tb *testbed) testRights(t *testing.T) {
	for i, missing := range resources {
		account := tb.WriteKubeconfig(t, "without-"+missing, accounts[i+1], "default")
		for _, command := range [][]string{{"audit"}, {"holder", address(0, 0)}} {
			want := 1
			if command[0] == "holder" && missing == "pods" {
				want = 0
			}
			cluster.MustEventually(t, command[0]+" without "+missing, 5*time.Minute, func() error {
				r := run(t, account, command...)
				if named := strings.Contains(strings.ToLower(r.stderr), "list "+missing+":"); r.code != want || named != (want == 1) {
					return fmt.Errorf("exit code %d, %s; want %d", r.code, r.stderr, want)
				}
				return nil
			})
		}
	}
}

// testExpired compacts etcd after the first page, so that the next one does not exist any more.
func (tb *testbed) testExpired(t *testing.T) {
	config, err := kube.CommandConfig(tb.WriteKubeconfig(t, "expired", accounts[0], "default"), "test")
	check.Must(t, err)
	from, err := fleet.New(config)
	check.Must(t, err)
	begins, names := 0, map[string]bool{}
	err = from.CiliumNodes(t.Context(), func() func(*ciliumnode.Node) {
		begins++
		clear(names)
		return func(n *ciliumnode.Node) {
			if begins == 1 && len(names) == 0 {
				tb.expireLists(t)
				cluster.MustEventually(t, "the rights to be in effect again", 5*time.Minute, func() error {
					_, err := from.NodeUIDs(t.Context())
					return err
				})
			}
			names[n.Metadata.Name] = true
		}
	})
	if err != nil || begins != 2 || len(names) != tb.count {
		t.Errorf("after %d begins %d CiliumNodes, %v; want %d after 2", begins, len(names), err, tb.count)
	}
}

// testFindings makes one fault of each kind, on nodes of different pages.
func (tb *testbed) testFindings(t *testing.T, account string) {
	last := tb.count - 1
	nodes, pods := tb.CiliumNodes(), tb.Pods("kube-system")
	check.Must(t, errors.Join(
		cluster.Patch(t.Context(), nodes, nodeName(3), poolOf(map[string]any{"::ffff:" + address(last, 0): entry(200)})),
		cluster.Patch(t.Context(), nodes, nodeName(4), poolOf(map[string]any{address(8, 250): map[string]any{}, "192.0.2.9": map[string]any{}})),
		cluster.Patch(t.Context(), nodes, nodeName(9), map[string]any{"spec": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "ip": "192.0.2.9"}}}}),
		cluster.Patch(t.Context(), nodes, nodeName(last), usedBy(map[string]any{"172.31.0.1": map[string]any{"owner": "default/lost"}}), "status"),
		tb.Nodes().Delete(t.Context(), nodeName(700), metav1.DeleteOptions{}),
		pods.Delete(t.Context(), "bridge-"+nodeName(5), metav1.DeleteOptions{}),
		cluster.Patch(t.Context(), pods, "bridge-"+nodeName(6), ready("False"), "status"),
	))

	r := run(t, account, "audit", "-o", "json")
	var report struct {
		Findings []struct {
			Check, Node, OtherNode, Address string
			Holders                         []struct{ Node, Slot, UsedBy string }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 3 {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	var got []string
	for _, f := range report.Findings {
		got = append(got, strings.TrimSpace(f.Check+" "+f.Node+" "+f.Address+" "+f.OtherNode))
		for _, h := range f.Holders {
			got = append(got, strings.TrimSpace("- "+h.Node+" "+h.Slot+" "+h.UsedBy))
		}
	}
	want := []string{
		"address-in-two-pools  " + address(last, 0), "- " + nodeName(3) + " ciliumnode-200", "- " + nodeName(last) + " ciliumnode-0 default/pod-0",
		"address-outside-pod-cidrs " + nodeName(3) + " " + address(last, 0) + " " + nodeName(last), "- " + nodeName(3) + " ciliumnode-200", "- " + nodeName(last) + " ciliumnode-0 default/pod-0",
		"address-outside-pod-cidrs " + nodeName(4) + " " + address(8, 250) + " " + nodeName(8), "- " + nodeName(4),
		"address-of-another-node " + nodeName(4) + " 192.0.2.9 " + nodeName(9), "- " + nodeName(4),
		"address-not-in-pool " + nodeName(last) + " 172.31.0.1", "- " + nodeName(last) + "  default/lost",
		"node-deleted " + nodeName(700),
		"no-bridge " + nodeName(5), "no-bridge " + nodeName(6),
		"malformed-address " + nodeName(3) + " ::ffff:" + address(last, 0),
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r := run(t, account, "holder", address(last, 0), address(1, 0)); r.code != 3 || !strings.Contains(r.stdout, nodeName(3)) {
		t.Errorf("holder of it: %+v; want exit code 3 and both nodes", r)
	}
}

const poolSize, usedSize = 110, 50

// resources are the resources of the deployed ClusterRole. accounts are the service accounts: the
// first has all rights, and each other one lacks the right to the resource at its place.
var (
	resources = []string{"ciliumnodes", "nodes", "pods"}
	accounts  = []string{"kube-system:audit", "kube-system:without-ciliumnodes", "kube-system:without-nodes", "kube-system:without-pods"}
)

type testbed struct {
	*cluster.Cluster
	count int
	// dir has the certificate of the API server.
	dir string
}

// newTestbed starts the cluster with the CRD and the RBAC rules. It skips the test outside the
// namespaces of run.sh.
func newTestbed(t *testing.T) *testbed {
	cluster.SkipUnless(t, "audit-test")
	count, err := strconv.Atoi(cmp.Or(os.Getenv("AUDIT_TEST_NODES"), "1200"))
	check.Must(t, err)
	built := cluster.MustEnv(t, "AUDIT_TEST_DIR", "audit-test")
	dir := cluster.EmptyDir(t, built, "run")
	tb := &testbed{count: count, dir: dir, Cluster: cluster.Start(t, cluster.Config{
		Dir: dir, APIServer: cluster.MustEnv(t, "AUDIT_TEST_APISERVER", "audit-test"), Host: cluster.Host, ServiceAccounts: accounts,
	})}
	tb.CreateKinds(t, filepath.Join(built, "crds"))
	role := readRole(t)
	tb.grant(t, role, accounts[0])
	for i, missing := range resources {
		tb.grant(t, without(t, role, missing), accounts[i+1])
	}
	return tb
}

func readRole(t *testing.T) *unstructured.Unstructured {
	file := cluster.MustEnv(t, "AUDIT_TEST_MANIFEST", "audit-test")
	text, err := os.ReadFile(file)
	check.Must(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		role := &unstructured.Unstructured{}
		check.Must(t, yaml.Unmarshal([]byte(document), &role.Object))
		if role.GetKind() == "ClusterRole" {
			return role
		}
	}
	t.Fatalf("%s has no ClusterRole", file)
	return nil
}

func without(t *testing.T, role *unstructured.Unstructured, resource string) *unstructured.Unstructured {
	t.Helper()
	out := role.DeepCopy()
	rules, _, err := unstructured.NestedSlice(out.Object, "rules")
	check.Must(t, err)
	found := false
	for _, rule := range rules {
		rule := rule.(map[string]any)
		all := rule["resources"].([]any)
		rule["resources"] = slices.DeleteFunc(all, func(r any) bool { return r == resource })
		found = found || len(rule["resources"].([]any)) < len(all)
	}
	if !found {
		t.Fatalf("no rule is about %s", resource)
	}
	// A rule without a resource is not valid.
	rules = slices.DeleteFunc(rules, func(rule any) bool { return len(rule.(map[string]any)["resources"].([]any)) == 0 })
	check.Must(t, unstructured.SetNestedSlice(out.Object, rules, "rules"))
	return out
}

func (tb *testbed) grant(t *testing.T, role *unstructured.Unstructured, account string) {
	t.Helper()
	_, name, _ := strings.Cut(account, ":")
	role = role.DeepCopy()
	role.SetName(name)
	check.Must(t, tb.Create(t.Context(), role))
	tb.Bind(t, name, account)
}

func nodeName(i int) string { return fmt.Sprintf("worker-%05d", i) }

func address(i, n int) string { return fmt.Sprintf("10.%d.%d.%d", i/256, i%256, n+1) }

func entry(slot int) map[string]any {
	return map[string]any{"resource": fmt.Sprintf("delegated-ipam/ciliumnode-%d", slot)}
}

func (tb *testbed) createNodes(t *testing.T) {
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for i := range tb.count {
		group.Go(func() error {
			name := nodeName(i)
			node := cluster.Object("v1", "Node", name)
			node.Object["spec"] = map[string]any{"podCIDRs": []any{address(i, -1) + "/24"}, "podCIDR": address(i, -1) + "/24"}
			pool, used := map[string]any{}, map[string]any{}
			for n := range poolSize {
				pool[address(i, n)] = entry(n)
				if n < usedSize {
					used[address(i, n)] = map[string]any{"owner": fmt.Sprintf("default/pod-%d", n), "resource": entry(n)["resource"]}
				}
			}
			ciliumNode := cluster.Object("cilium.io/v2", "CiliumNode", name)
			ciliumNode.Object["spec"] = map[string]any{"ipam": map[string]any{"pool": pool}}
			pod := cluster.Object("v1", "Pod", "bridge-"+name)
			pod.SetNamespace("kube-system")
			pod.SetLabels(map[string]string{"app.kubernetes.io/name": "delegated-ipam-bridge"})
			pod.Object["spec"] = map[string]any{
				"nodeName": name, "terminationGracePeriodSeconds": int64(0),
				"containers": []any{map[string]any{"name": "bridge", "image": "ghcr.io/delegated-ipam/delegated-ipam-bridge:local"}},
			}
			for _, object := range []*unstructured.Unstructured{node, ciliumNode, pod} {
				if err := tb.Create(ctx, object); err != nil {
					return fmt.Errorf("create %s %s: %w", object.GetKind(), name, err)
				}
			}
			if err := cluster.Patch(ctx, tb.CiliumNodes(), name, usedBy(used), "status"); err != nil {
				return err
			}
			return cluster.Patch(ctx, tb.Pods("kube-system"), "bridge-"+name, ready("True"), "status")
		})
	}
	check.Must(t, group.Wait())
}

func poolOf(entries map[string]any) any {
	return map[string]any{"spec": map[string]any{"ipam": map[string]any{"pool": entries}}}
}

func usedBy(entries map[string]any) any {
	return map[string]any{"status": map[string]any{"ipam": map[string]any{"used": entries}}}
}

func ready(status string) any {
	return map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": status}}}}
}

// expireLists makes the pages of every list so far unavailable: etcd drops its older revisions, and the
// API server its cache, by a restart.
func (tb *testbed) expireLists(t *testing.T) {
	check.Must(t, cluster.Patch(t.Context(), tb.CiliumNodes(), nodeName(0), `{"metadata":{"labels":{"a":"b"}}}`)) // an older revision than the present one exists
	var status struct{ Header struct{ Revision string } }
	etcd(t, "/v3/maintenance/status", `{}`, &status)
	etcd(t, "/v3/kv/put", `{"key":"eA==","value":"eA=="}`, &status)
	etcd(t, "/v3/kv/compaction", fmt.Sprintf(`{"revision":%q}`, status.Header.Revision), &struct{}{})
	tb.APIServer.End(syscall.SIGTERM)
	tb.APIServer.MustStart(t)
	tb.WaitReady(t)
}

func etcd(t *testing.T, path, body string, into any) {
	t.Helper()
	response, err := http.Post("http://127.0.0.1:2379"+path, "application/json", strings.NewReader(body))
	check.Must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check.Must(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("etcd %s: %s: %s", path, response.Status, text)
	}
	check.Must(t, json.Unmarshal(text, into))
}
