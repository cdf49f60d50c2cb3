// Package network tests delegated-ipam-bridge network with a real kube-apiserver (test/README.md).
package network

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	template = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local","ranges":"${ranges}"}}]}`
	first    = "10.244.1.0/24"
	second   = "10.244.2.0/24"
	third    = "10.244.3.0/24"
)

// TestNode follows the life of a Node. Each step begins where the one before it ended. A reader
// finds no partly written file.
func TestNode(t *testing.T) {
	tb := newTestbed(t)
	defer tb.watchFile(t)()
	tb.program.MustStart(t)

	step := func(name string, run func(t *testing.T)) {
		if !t.Run(name, run) {
			t.FailNow()
		}
	}
	step("no Node", func(t *testing.T) { tb.want(t, "NodeMissing", "") })
	step("podCIDRs later", func(t *testing.T) {
		tb.createNode(t)
		tb.want(t, "NoPodCIDR", "")
		tb.setPodCIDR(t, first)
		tb.want(t, "", first)
		if got := tb.events(t, "NoPodCIDR"); len(got) > 0 {
			t.Errorf("Events %v; want none, because podCIDRs are normally assigned later", got)
		}
	})
	step("killed", func(t *testing.T) {
		before, err := os.Stat(tb.output)
		check.Must(t, err)
		tb.restart(t)
		tb.want(t, "", first)
		if after, err := os.Stat(tb.output); err != nil || !os.SameFile(before, after) || after.Mode() != 0o644 {
			t.Errorf("the file is %v, %v; want the same as before, with mode 0644", after, err)
		}
	})
	step("Node deleted", func(t *testing.T) {
		tb.deleteNode(t)
		tb.want(t, "NodeMissing", "")
	})
	step("created again, dual stack", func(t *testing.T) {
		tb.createNode(t, "fd00:10:244:2::/64", second)
		tb.want(t, "", second)
		tb.want(t, "", "fd00:10:244:2::/64")
	})
	step("template changed", func(t *testing.T) {
		tb.setTemplate(t, strings.Replace(template, "pods", "pods-2", 1))
		cluster.MustEventually(t, "the other network", limit, func() error {
			text, err := os.ReadFile(tb.output)
			if !strings.Contains(string(text), `"pods-2"`) {
				return fmt.Errorf("the file is %s, %w", text, err)
			}
			return nil
		})
		tb.want(t, "", second)
	})
	step("template invalid", func(t *testing.T) {
		tb.setTemplate(t, "{")
		tb.want(t, "TemplateRefused", second)
		tb.restart(t)
		tb.want(t, "TemplateRefused", second)
		tb.setTemplate(t, strings.Replace(template, `"${ranges}"`, `[[{"subnet":"10.0.0.0/16"}]]`, 1))
		tb.want(t, "SharedRange", second)
		tb.setTemplate(t, template)
		tb.want(t, "", second)
	})
	step("API server down", tb.testDown)
	step("events", tb.testEvents)
	tb.program.End(syscall.SIGTERM)
	if got := tb.program.Current().State(); !got.Success() {
		t.Errorf("after SIGTERM: %s", got)
	}
	if _, err := os.Stat(tb.output); err != nil {
		t.Errorf("the end has removed the file: %v", err)
	}
}

// testDown ends the API server and starts it again: while it is down nothing changes, even if the
// program is restarted, and afterwards the Node is another one.
func (tb *testbed) testDown(t *testing.T) {
	tb.APIServer.End(syscall.SIGKILL)
	cluster.MustEventually(t, "a failed request", limit, func() error {
		if text := get("/metrics"); strings.Contains(text, `api_errors_total{operation="list"} 0`) && strings.Contains(text, `api_errors_total{operation="watch"} 0`) {
			return errors.New("none is counted")
		}
		return nil
	})
	tb.want(t, "", second)
	tb.restart(t)
	tb.want(t, "APIServerUnavailable", second)
	tb.program.End(syscall.SIGKILL)
	tb.APIServer.MustStart(t)
	tb.WaitReady(t)
	tb.deleteNode(t)
	tb.createNode(t, third)
	tb.program.MustStart(t)
	tb.want(t, "", third)
}

// testEvents lasts more than two minutes, because a condition becomes an Event after one. The second
// equal Event is a patch of the first.
func (tb *testbed) testEvents(t *testing.T) {
	for count := range 2 {
		tb.deleteNode(t)
		tb.createNode(t)
		tb.want(t, "NoPodCIDR", "")
		cluster.MustEventually(t, "the Event", 2*limit, func() error {
			all := tb.events(t, "NoPodCIDR")
			if len(all) != 1 {
				return fmt.Errorf("%d Events; want one", len(all))
			}
			if got, _, _ := unstructured.NestedInt64(all[0].Object, "count"); got != int64(count+1) {
				return fmt.Errorf("it is counted %d times; want %d", got, count+1)
			}
			return nil
		})
		tb.setPodCIDR(t, third)
		tb.want(t, "", third)
	}
}

// watchFile reads the file again and again until the returned function is called: it never sees a part
// of it.
func (tb *testbed) watchFile(t *testing.T) (stop func()) {
	var stopped atomic.Bool
	var running sync.WaitGroup
	reads := 0
	running.Go(func() {
		tick := time.NewTicker(time.Millisecond) // a loop would take a processor from the cluster
		defer tick.Stop()
		for ; !stopped.Load(); <-tick.C {
			text, err := os.ReadFile(tb.output)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err == nil {
				_, err = libcni.NetworkConfFromBytes(text)
			}
			if err != nil {
				t.Errorf("a reader got %q: %v", text, err)
				return
			}
			reads++
		}
	})
	return func() {
		stopped.Store(true)
		running.Wait()
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(tb.output), ".*")); reads == 0 || len(left) > 0 {
			t.Errorf("%d reads; left beside the file: %v", reads, left)
		}
	}
}

// TestRights shows that the rights on Nodes are necessary; TestNode runs with the deployed ones. An API
// server that streams lists (WatchList) asks for watch only; any other asks for list.
func TestRights(t *testing.T) {
	tb := newTestbed(t)
	tb.createNode(t, first)
	for _, missing := range []string{"get", "watch"} {
		t.Run(missing, func(t *testing.T) {
			tb.grantWithout(t, missing)
			p := tb.as(t, without+missing)
			p.MustStart(t)
			defer p.End(syscall.SIGKILL)
			cluster.MustEventually(t, "the refusal of "+missing, limit, func() error {
				if got := get("/readyz"); !strings.HasPrefix(got, "503 NotPermitted: nodes") || !strings.Contains(got, "cannot "+missing+" resource") {
					return errors.New(got)
				}
				return nil
			})
			_, err := os.Stat(tb.output)
			if written := err == nil; written != (missing != "get") {
				t.Errorf("the file: %v; want it unless the Node cannot be read", err)
			}
			if err == nil {
				check.Must(t, os.Remove(tb.output))
			}
		})
	}
}

func (tb *testbed) grantWithout(t *testing.T, missing string) {
	role, err := tb.Resource("rbac.authorization.k8s.io", "v1", "clusterroles").Get(t.Context(), "delegated-ipam-network", metav1.GetOptions{})
	check.Must(t, err)
	nodes := role.Object["rules"].([]any)[0].(map[string]any)
	verbs := slices.DeleteFunc(nodes["verbs"].([]any), func(verb any) bool { return verb == missing })
	if len(verbs) != 2 || fmt.Sprint(nodes["resources"]) != "[nodes]" {
		t.Fatalf("the first rule is %v; want three verbs on nodes", nodes)
	}
	nodes["verbs"] = verbs
	reduced := cluster.Object("rbac.authorization.k8s.io/v1", "ClusterRole", "without-"+missing)
	reduced.Object["rules"] = []any{nodes}
	check.Must(t, tb.Create(t.Context(), reduced))
	tb.Bind(t, reduced.GetName(), without+missing)
}

const (
	// metricsAddress is in the network namespace of run.sh.
	metricsAddress = "127.0.0.1:9968"
	nodeName       = "worker-1"
	// account is the account of the manifest; without+VERB lacks a verb on nodes.
	account = "kube-system:delegated-ipam-network"
	without = "kube-system:without-"
	// limit is the time for one change to have its effect on a busy machine.
	limit = 2 * time.Minute
)

type testbed struct {
	*cluster.Cluster
	// volume is the directory of the template, as the kubelet makes it; version counts its contents.
	volume  string
	version int
	// output is the rendered file.
	output string
	// program is delegated-ipam-bridge network.
	program *cluster.Program
}

// newTestbed starts the cluster with the deployed rights, in which the program does not run yet. It
// skips the test outside the namespaces of run.sh.
func newTestbed(t *testing.T) *testbed {
	t.Helper()
	cluster.SkipUnless(t, "network-test")
	tb := &testbed{volume: t.TempDir(), output: filepath.Join(t.TempDir(), "pods.conflist"), Cluster: cluster.Start(t, cluster.Config{
		Dir: t.TempDir(), APIServer: cluster.MustEnv(t, "NETWORK_TEST_APISERVER", "network-test"), Host: cluster.Host,
		ServiceAccounts: []string{account, without + "get", without + "watch"},
	})}
	tb.Apply(t, manifest(t, "network/rbac.yaml"))
	tb.setTemplate(t, template)
	tb.program = tb.as(t, account)
	return tb
}

func manifest(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(cluster.MustEnv(t, "NETWORK_TEST_MANIFESTS", "network-test"), name)
}

func (tb *testbed) as(t *testing.T, account string) *cluster.Program {
	t.Helper()
	_, name, _ := strings.Cut(account, ":")
	dir := t.TempDir()
	p := cluster.NewProgram(t, dir, name, nil, cluster.MustEnv(t, "NETWORK_TEST_BRIDGE", "network-test"), "network",
		"--node-name="+nodeName, "--kubeconfig="+tb.WriteKubeconfig(t, name, account, "default"),
		"--template="+filepath.Join(tb.volume, "pods.conflist"), "--output="+tb.output, "--metrics-address="+metricsAddress)
	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(dir, name+".log")); t.Failed() && err == nil {
			t.Logf("log of %s:\n%s", name, text)
		}
	})
	return p
}

func (tb *testbed) setTemplate(t *testing.T, text string) {
	t.Helper()
	tb.version++
	content := fmt.Sprintf("..2026_11_22_15_04_05.%d", tb.version)
	check.Must(t, os.Mkdir(filepath.Join(tb.volume, content), 0o755))
	check.Must(t, os.WriteFile(filepath.Join(tb.volume, content, "pods.conflist"), []byte(text), 0o644))
	check.Must(t, os.Symlink(content, filepath.Join(tb.volume, "..data_tmp")))
	check.Must(t, os.Rename(filepath.Join(tb.volume, "..data_tmp"), filepath.Join(tb.volume, "..data")))
	if tb.version == 1 {
		check.Must(t, os.Symlink("..data/pods.conflist", filepath.Join(tb.volume, "pods.conflist")))
	}
}

func (tb *testbed) createNode(t *testing.T, podCIDRs ...any) {
	t.Helper()
	n := cluster.Object("v1", "Node", nodeName)
	if len(podCIDRs) > 0 {
		n.Object["spec"] = map[string]any{"podCIDR": podCIDRs[0], "podCIDRs": podCIDRs}
	}
	check.Must(t, tb.Create(t.Context(), n))
}

func (tb *testbed) setPodCIDR(t *testing.T, podCIDR string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"podCIDR":%q,"podCIDRs":[%q]}}`, podCIDR, podCIDR)
	check.Must(t, cluster.Patch(t.Context(), tb.Nodes(), nodeName, patch))
}

func (tb *testbed) deleteNode(t *testing.T) {
	t.Helper()
	check.Must(t, tb.Nodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}))
}

func (tb *testbed) events(t *testing.T, reason string) []unstructured.Unstructured {
	t.Helper()
	list, err := tb.Resource("", "v1", "events").Namespace("default").List(t.Context(), metav1.ListOptions{
		FieldSelector: "reason=" + reason + ",type=Warning,involvedObject.kind=Node,involvedObject.name=" + nodeName,
	})
	check.Must(t, err)
	return list.Items
}

// want waits until /readyz has a reason, 200 for an empty one, and the file a range, or does not exist
// for an empty one.
func (tb *testbed) want(t *testing.T, reason, podCIDR string) {
	t.Helper()
	cluster.MustEventually(t, fmt.Sprintf("the reason %q and the range %q", reason, podCIDR), limit, func() error {
		if got := get("/readyz"); !strings.HasPrefix(got, map[bool]string{true: "200 ok", false: "503 " + reason}[reason == ""]) {
			return errors.New(got)
		}
		text, err := os.ReadFile(tb.output)
		switch {
		case podCIDR == "" && !errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("the file is %s, %w; want none", text, err)
		case podCIDR != "" && !strings.Contains(string(text), `"subnet": "`+podCIDR+`"`):
			return fmt.Errorf("the file is %s, %w", text, err)
		}
		return nil
	})
}

// get returns status code and body of a response; the error text if there is none.
func get(path string) string {
	resp, err := http.Get("http://" + metricsAddress + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func (tb *testbed) restart(t *testing.T) {
	t.Helper()
	tb.program.End(syscall.SIGKILL)
	tb.program.MustStart(t)
}
