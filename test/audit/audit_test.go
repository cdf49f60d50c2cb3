// Package audit tests the audit of a cluster with a real kube-apiserver (test/README.md).
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// result is the end of a command.
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
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		t.Logf("%v: %d MiB at most, %s of CPU", args, usage.Maxrss/1024, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
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
		harness.Must(t, os.MkdirAll(mount, 0o755))
		certificate, err := os.ReadFile(filepath.Join(tb.dir, "api.crt"))
		harness.Must(t, err)
		harness.Must(t, os.WriteFile(filepath.Join(mount, "ca.crt"), certificate, 0o600))
		harness.Must(t, os.WriteFile(filepath.Join(mount, "token"), []byte(accounts[0]), 0o600))
		if r := run(t, "", "audit"); r.code != 0 {
			t.Errorf("%+v; want exit code 0", r)
		}
	})
	t.Run("rights", func(t *testing.T) { tb.testRights(t) })
	t.Run("expired pages", func(t *testing.T) { tb.testExpired(t) })
	t.Run("findings", func(t *testing.T) { tb.testFindings(t, account) })
	t.Run("no API server", func(t *testing.T) {
		tb.APIServer.End(syscall.SIGKILL)
		if r := run(t, account, "audit"); r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "list CiliumNodes") {
			t.Errorf("%+v; want exit code 1 and no output", r)
		}
	})
}

// testRights runs the commands without each of the rights.
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
	harness.Must(t, err)
	from, err := fleet.New(config)
	harness.Must(t, err)
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
	tb.patchPool(t, 3, map[string]any{"::ffff:" + address(last, 0): entry(200)})
	tb.patchUsed(t, last, map[string]any{"172.31.0.1": map[string]any{"owner": "default/lost"}})
	tb.deleteObject(t, "nodes", "", nodeName(700))
	tb.deleteObject(t, "pods", "kube-system", "bridge-"+nodeName(5))
	tb.setPodReady(t, 6, "False")

	r := run(t, account, "audit", "-o", "json")
	var report struct {
		Findings []struct {
			Check, Node, Address string
			Holders              []struct{ Node, Slot, UsedBy string }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 3 {
		t.Fatalf("exit code %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	var got []string
	for _, f := range report.Findings {
		got = append(got, f.Check+" "+f.Node+" "+f.Address)
		for _, h := range f.Holders {
			got = append(got, strings.TrimSpace("- "+h.Node+" "+h.Slot+" "+h.UsedBy))
		}
	}
	want := []string{
		"address-in-two-pools  " + address(last, 0), "- " + nodeName(3) + " ciliumnode-200", "- " + nodeName(last) + " ciliumnode-0 default/pod-0",
		"address-outside-pod-cidrs " + nodeName(3) + " " + address(last, 0), "- " + nodeName(3) + " ciliumnode-200", "- " + nodeName(last) + " ciliumnode-0 default/pod-0",
		"address-not-in-pool " + nodeName(last) + " 172.31.0.1", "- " + nodeName(last) + "  default/lost",
		"node-deleted " + nodeName(700) + " ",
		"no-bridge " + nodeName(5) + " ", "no-bridge " + nodeName(6) + " ",
		"malformed-address " + nodeName(3) + " ::ffff:" + address(last, 0),
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r := run(t, account, "holder", address(last, 0), address(1, 0)); r.code != 3 || !strings.Contains(r.stdout, nodeName(3)) {
		t.Errorf("holder of it: %+v; want exit code 3 and both nodes", r)
	}
}
