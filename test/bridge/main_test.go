// Package bridge runs the real bridge and the real sidecar over the real
// host-local, with an imitated API server and an imitated agent.
package bridge

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/cli"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// runAsBridgeEnv makes the test binary be the bridge: a process that can be killed,
// with the race detector where the tests have it.
const runAsBridgeEnv = "DELEGATED_IPAM_TEST_AS_BRIDGE"

func TestMain(m *testing.M) {
	if os.Getenv(runAsBridgeEnv) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		os.Exit(cli.Run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr, "test"))
	}
	harness.Main(m)
}

// process is a running bridge.
type process struct {
	cmd *exec.Cmd
	out *log
}

// log collects what a process writes.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startBridge runs the bridge of a node. It ends with the test.
func startBridge(t *testing.T, s *apiserver.Server, n *harness.Node, flags ...string) *process {
	t.Helper()
	p := &process{out: &log{}}
	p.cmd = exec.Command(os.Args[0], append([]string{
		"--node-name=" + n.Name, "--host=" + n.Socket, "--kubeconfig=" + s.Kubeconfig(t), "--excess-ip-release-delay=300ms", "--log-level=debug",
	}, flags...)...)
	p.cmd.Env = []string{runAsBridgeEnv + "=1", "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.end(t, syscall.SIGTERM)
		}
		if bytes.Contains([]byte(p.out.String()), []byte("WARNING: DATA RACE")) {
			t.Error("the race detector found something")
		}
		if t.Failed() {
			t.Logf("output of the bridge:\n%s", p.out)
		}
	})
	return p
}

// end ends the process with a signal, and waits for it.
func (p *process) end(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	err := p.cmd.Wait()
	if sig == syscall.SIGTERM && err != nil {
		t.Errorf("after SIGTERM the bridge ended with %v; want status 0; its output:\n%s", err, p.out)
	}
}

// compare is nil if what the plugin holds is what the pool has.
func compare(t *testing.T, s *apiserver.Server, n *harness.Node) error {
	t.Helper()
	node, _ := s.Node(t, n.Name)
	held := map[string]bool{}
	for _, l := range n.Leases(t) {
		held[l.IP.String()] = true
		if _, published := node.Pool[l.IP.String()]; !published {
			return fmt.Errorf("%s is held and not in the pool", l.IP)
		}
	}
	for ip := range node.Pool {
		if !held[ip] {
			return fmt.Errorf("%s is in the pool and not held", ip)
		}
	}
	return nil
}
