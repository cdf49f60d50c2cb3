package kubernetes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// node is a machine: a set of namespaces, whose first process is node.sh.
type node struct {
	name, ip, ip6 string
	// dir has the disk and the logs.
	dir     string
	machine *cluster.Program
}

// newNode defines a node. Its address has the given last number.
func (tb *testbed) newNode(t *testing.T, name string, number int) *node {
	t.Helper()
	n := &node{name: name, ip: fmt.Sprintf("192.0.2.%d", number), ip6: fmt.Sprintf("2001:db8::%d", number), dir: filepath.Join(tb.dir, name)}
	harness.Must(t, os.MkdirAll(n.dir, 0o755))
	ips := n.ip
	if tb.dual {
		ips += "," + n.ip6
	}
	env := []string{
		"NODE_NAME=" + n.name, "NODE_IP=" + n.ip, "NODE_IP6=" + n.ip6, "NODE_IPS=" + ips, "NODE_DIR=" + n.dir,
		"API_HOST=" + apiHost, "API_HOST6=" + apiHost6,
		"NODE_AGENT=" + tb.agent,
		"NODE_KUBECONFIG=" + tb.WriteKubeconfig(t, name, name, "default"),
	}
	command := []string{"bash", filepath.Join(tb.root, "test", "kubernetes", "node.sh")}
	n.machine = cluster.NewProgram(t, n.dir, "boot", env, append(command, tb.allAgentFlags()...)...)
	n.machine.InNamespaces(syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC)
	return n
}

// boot starts the machine and waits until its services have been started.
func (n *node) boot(t *testing.T) {
	t.Helper()
	booted := filepath.Join(n.dir, "booted")
	harness.Must(t, os.RemoveAll(booted))
	now := n.machine.MustStart(t)
	n.connect(t)
	cluster.MustEventually(t, n.name+" to boot", convergeTimeout, func() error {
		if !now.Running() {
			t.Fatalf("%s ended; see %s", n.name, filepath.Join(n.dir, "boot.log"))
		}
		_, err := os.Stat(booted)
		return err
	})
}

// powerOff kills all processes of the node together.
func (n *node) powerOff() { n.machine.End(syscall.SIGKILL) }

// pid returns the first process of the node, as seen by the test.
func (n *node) pid() int { return n.machine.Current().PID() }

// path returns the path by which the test sees a file of the node.
func (n *node) path(file string) string { return fmt.Sprintf("/proc/%d/root%s", n.pid(), file) }

// agent returns the client of the node's agent.
func (n *node) agent() ciliumagent.API {
	return ciliumagent.API{Socket: n.path("/run/cilium/cilium.sock")}
}

// command runs a command on the node, and returns its output.
func (n *node) command(ctx context.Context, args ...string) (string, error) {
	enter := []string{"--target", strconv.Itoa(n.pid()), "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--"}
	return run(exec.CommandContext(ctx, "nsenter", append(enter, args...)...))
}

// run runs a command and returns its output. The error has the output too.
func run(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out), nil
}

// processes returns the IDs, as seen by the test, of the node's processes whose arguments match.
func (n *node) processes(match func(args []string) bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(line) == 0 || !match(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")) {
			continue // another process, or it has ended
		}
		// A container has another PID namespace, but a cgroup below the node's.
		groups, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err == nil && strings.Contains(strings.ReplaceAll(string(groups), "\n", "/\n"), n.cgroup()+"/") {
			found = append(found, pid)
		}
	}
	return found, nil
}

// cgroup returns the path of the node's cgroup in each hierarchy.
func (n *node) cgroup() string { return "/" + os.Getenv("CLUSTER_TEST_CGROUP") + "/" + n.name }
