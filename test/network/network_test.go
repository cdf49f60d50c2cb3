// Package network tests delegated-ipam-bridge network with a real kube-apiserver (test/README.md).
package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
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
		harness.Must(t, err)
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
	step("API server down", func(t *testing.T) { tb.testDown(t) })
	step("events", func(t *testing.T) { tb.testEvents(t) })
	t.Logf("memory: %q", tb.memory(t, tb.program.Current().PID()))
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
	t.Helper()
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

// TestRights shows that each right on Nodes is necessary; TestNode runs with the deployed ones.
func TestRights(t *testing.T) {
	tb := newTestbed(t)
	tb.createNode(t, first)
	for _, missing := range []string{"get", "list", "watch"} {
		t.Run(missing, func(t *testing.T) {
			tb.grantWithout(t, missing)
			p := tb.as(t, without+missing)
			p.MustStart(t)
			defer p.End(syscall.SIGKILL)
			want := "503 NotPermitted: nodes"
			cluster.MustEventually(t, "the refusal of "+missing, limit, func() error {
				if got := get("/readyz"); !strings.HasPrefix(got, want) || !strings.Contains(got, "cannot "+missing+" resource") {
					return fmt.Errorf("got %q; want %q", got, want)
				}
				return nil
			})
			_, err := os.Stat(tb.output)
			if written := err == nil; written != (missing != "get") {
				t.Errorf("the file: %v; want it unless the Node cannot be read", err)
			}
			if err == nil {
				harness.Must(t, os.Remove(tb.output))
			}
		})
	}
}

// grantWithout grants the deployed rights on Nodes but one.
func (tb *testbed) grantWithout(t *testing.T, missing string) {
	t.Helper()
	const deployed = "delegated-ipam-network"
	role := tb.deployedRole(t, deployed)
	rules, _, err := unstructured.NestedSlice(role.Object, "rules")
	harness.Must(t, err)
	nodes := rules[0].(map[string]any)
	var verbs []any
	for _, verb := range nodes["verbs"].([]any) {
		if verb != missing {
			verbs = append(verbs, verb)
		}
	}
	if len(verbs) != 2 || fmt.Sprint(nodes["resources"]) != "[nodes]" {
		t.Fatalf("the first rule of %s is %v; want three verbs on nodes", deployed, nodes)
	}
	nodes["verbs"] = verbs
	reduced := cluster.Object("rbac.authorization.k8s.io/v1", "ClusterRole", "without-"+missing)
	reduced.Object["rules"] = []any{nodes}
	harness.Must(t, tb.Create(t.Context(), reduced))
	binding := cluster.Object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "without-"+missing)
	binding.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": reduced.GetName()}
	binding.Object["subjects"] = []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:serviceaccount:" + without + missing}}
	harness.Must(t, tb.Create(t.Context(), binding))
}
