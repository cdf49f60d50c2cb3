// Package bridge tests the real bridge and the real daemon over the real host-local, with an imitated
// API server and an imitated agent.
package bridge

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam-bridge/cli"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// runAsBridgeEnv makes the test binary run the bridge: a process that can be killed, with the race
// detector if the tests have it.
const runAsBridgeEnv = "DELEGATED_IPAM_TEST_AS_BRIDGE"

func TestMain(m *testing.M) {
	if os.Getenv(runAsBridgeEnv) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		os.Exit(cli.Run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr, "test"))
	}
	harness.Main(m)
}

type process struct {
	cmd *exec.Cmd
	out *log
}

// log collects the output of a process.
type log struct {
	begun sync.Once
	first chan struct{} // closed by the first write
	mu    sync.Mutex
	text  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	defer l.begun.Do(func() { close(l.first) })
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startBridge runs the bridge of a node until the test ends.
func startBridge(t *testing.T, s *apiserver.Server, n *harness.Node, flags ...string) *process {
	t.Helper()
	p := &process{out: &log{first: make(chan struct{})}}
	p.cmd = exec.Command(os.Args[0], append([]string{
		"--node-name=" + n.Name, "--host=" + n.Socket, "--kubeconfig=" + s.Kubeconfig(t), "--excess-ip-release-delay=300ms", "--log-level=debug",
		"--max-above-watermark=0", // so that the number of slots follows from that of pods
	}, flags...)...)
	p.cmd.Env = []string{runAsBridgeEnv + "=1", "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	check.Must(t, p.cmd.Start())
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

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	check.Must(t, p.cmd.Process.Signal(sig))
}

// end sends a signal to the process and waits for its end. SIGTERM waits for the first line of the
// log: before it the process may not handle the signal yet.
func (p *process) end(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if sig == syscall.SIGTERM {
		<-p.out.first
	}
	p.signal(t, sig)
	err := p.cmd.Wait()
	if sig == syscall.SIGTERM && err != nil {
		t.Errorf("after SIGTERM the bridge ended with %v; want status 0; its output:\n%s", err, p.out)
	}
}
