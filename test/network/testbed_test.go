package network

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

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

// testbed is a cluster, and the files of one node.
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
	if !cluster.Namespaced() {
		t.Skip("the test needs root, etcd, kube-apiserver and separate namespaces; run 'make network-test'")
	}
	dir := t.TempDir()
	accounts := []string{account}
	for _, verb := range []string{"get", "list", "watch"} {
		accounts = append(accounts, without+verb)
	}
	tb := &testbed{volume: t.TempDir(), output: filepath.Join(t.TempDir(), "pods.conflist"), Cluster: cluster.Start(t, cluster.Config{
		Dir: dir, APIServer: cluster.MustEnv(t, "NETWORK_TEST_APISERVER", "network-test"), Host: cluster.Host, ServiceAccounts: accounts,
	})}
	tb.Apply(t, manifest(t, "network/rbac.yaml"))
	tb.setTemplate(t, template)
	tb.program = tb.as(t, account)
	return tb
}

// manifest returns the path of a file in deploy/kubernetes.
func manifest(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(cluster.MustEnv(t, "NETWORK_TEST_MANIFESTS", "network-test"), name)
}

// as returns the program with the token of a service account.
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

// setTemplate replaces the content of the volume as the kubelet does.
func (tb *testbed) setTemplate(t *testing.T, text string) {
	t.Helper()
	tb.version++
	content := fmt.Sprintf("..2026_11_22_15_04_05.%d", tb.version)
	harness.Must(t, os.Mkdir(filepath.Join(tb.volume, content), 0o755))
	harness.Must(t, os.WriteFile(filepath.Join(tb.volume, content, "pods.conflist"), []byte(text), 0o644))
	harness.Must(t, os.Symlink(content, filepath.Join(tb.volume, "..data_tmp")))
	harness.Must(t, os.Rename(filepath.Join(tb.volume, "..data_tmp"), filepath.Join(tb.volume, "..data")))
	if tb.version == 1 {
		harness.Must(t, os.Symlink("..data/pods.conflist", filepath.Join(tb.volume, "pods.conflist")))
	}
}

// createNode creates the Node.
func (tb *testbed) createNode(t *testing.T, podCIDRs ...any) {
	t.Helper()
	n := cluster.Object("v1", "Node", nodeName)
	if len(podCIDRs) > 0 {
		n.Object["spec"] = map[string]any{"podCIDR": podCIDRs[0], "podCIDRs": podCIDRs}
	}
	harness.Must(t, tb.Create(t.Context(), n))
}

// setPodCIDR sets the podCIDRs, as the controller manager does.
func (tb *testbed) setPodCIDR(t *testing.T, podCIDR string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"podCIDR":%q,"podCIDRs":[%q]}}`, podCIDR, podCIDR)
	_, err := tb.Resource("", "v1", "nodes").Patch(t.Context(), nodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	harness.Must(t, err)
}

func (tb *testbed) deleteNode(t *testing.T) {
	t.Helper()
	harness.Must(t, tb.Resource("", "v1", "nodes").Delete(t.Context(), nodeName, metav1.DeleteOptions{}))
}

// events returns the Events of a reason about the Node.
func (tb *testbed) events(t *testing.T, reason string) []unstructured.Unstructured {
	t.Helper()
	list, err := tb.Resource("", "v1", "events").Namespace("default").List(t.Context(), metav1.ListOptions{
		FieldSelector: "reason=" + reason + ",type=Warning,involvedObject.kind=Node,involvedObject.name=" + nodeName,
	})
	harness.Must(t, err)
	return list.Items
}

// deployedRole returns the ClusterRole of the manifest.
func (tb *testbed) deployedRole(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	role, err := tb.Resource("rbac.authorization.k8s.io", "v1", "clusterroles").Get(t.Context(), name, metav1.GetOptions{})
	harness.Must(t, err)
	return role
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

// restart kills the program and starts it again.
func (tb *testbed) restart(t *testing.T) {
	t.Helper()
	tb.program.End(syscall.SIGKILL)
	tb.program.MustStart(t)
}

// memory returns the lines of /proc with the memory of the program's process.
func (tb *testbed) memory(t *testing.T, pid int) []string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	harness.Must(t, err)
	return regexp.MustCompile(`(?m)^(VmHWM|VmRSS|RssAnon|RssFile):.*$`).FindAllString(string(text), -1)
}
