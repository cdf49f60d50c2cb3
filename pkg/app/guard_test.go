package app

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

func newTestGuards(t *testing.T, node, stateDir string) *guards {
	t.Helper()
	g := newGuards(node, stateDir)
	t.Cleanup(g.release)
	return g
}

// guardNode is a node name that no other test guards.
func guardNode(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("guard-%d-%s", os.Getpid(), filepath.Base(t.TempDir())+t.Name())
}

// occupy binds the guard of a network as a process that is not a sidecar: each
// connection goes to serve, concurrently.
func occupy(t *testing.T, node, network string, serve func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("unix", guardName(node, network))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				serve(conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
}

func TestAGuardKeepsASecondSidecarOfTheSameNodeAndNetworkAway(t *testing.T) {
	node := guardNode(t)
	first, second := newTestGuards(t, node, "/state/one"), newTestGuards(t, node, "/state/two")
	for range 2 { // taking it again does not conflict with oneself
		if err := first.take("net", askTime); err != nil {
			t.Fatal(err)
		}
	}
	err := second.take("net", time.Hour)
	if err == nil {
		t.Fatal("the second sidecar was let in")
	}
	for _, want := range []string{"net", node, fmt.Sprint(os.Getpid()), "/state/one", "--node-name"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}
	if err := second.take("other", 0); err != nil {
		t.Errorf("another network of the node: %v", err)
	}
	if err := newTestGuards(t, node+"-2", "").take("net", 0); err != nil {
		t.Errorf("the network on another node: %v", err)
	}
	first.release()
	if err := second.take("net", 0); err != nil {
		t.Errorf("after the first one has gone: %v", err)
	}
}

func TestGuardNamesOfDifferentNodesAndNetworksDiffer(t *testing.T) {
	if guardName("ab", "c") == guardName("a", "bc") {
		t.Error("node ab, network c and node a, network bc share a guard")
	}
}

func TestAHolderThatDoesNotAnswerDelaysNoRequest(t *testing.T) {
	node := guardNode(t)
	asked, end := make(chan struct{}, 100), make(chan struct{})
	occupy(t, node, "blue", func(net.Conn) { asked <- struct{}{}; <-end })
	t.Cleanup(func() { close(end) }) // before the holder is waited for
	g := newTestGuards(t, node, "/state")
	// With the holder silent, each of these returns.
	for range 24 {
		if err := g.take("blue", 0); err == nil || !strings.Contains(err.Error(), "blue") {
			t.Fatalf("got %v; want the network refused", err)
		}
		if err := g.take("default", 0); err != nil {
			t.Fatalf("the network of another pool: %v", err)
		}
	}
	<-asked
	if n := len(asked); n != 0 {
		t.Errorf("the holder was asked %d times more; want one question at a time", n)
	}
}

func TestWhatAHolderSendsIsBoundedAndPrintable(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(net.Conn)
		want  string
	}{
		"a flood without an end of line": {
			func(conn net.Conn) {
				sent, part := 0, []byte(strings.Repeat("x", 64<<10))
				for {
					n, err := conn.Write(part)
					if sent += n; err != nil {
						break
					}
				}
				if sent > 1<<20 { // more than the kernel's buffers
					t.Errorf("%d bytes were taken", sent)
				}
			},
			"does not say",
		},
		"nothing":                     {func(net.Conn) {}, fmt.Sprintf("PID %d", os.Getpid())},
		"what drives a terminal":      {func(conn net.Conn) { _, _ = fmt.Fprint(conn, "PID 1\x1b[2J\u202e\n") }, `PID 1\x1b[2J\u202e`},
		"more after the end of line":  {func(conn net.Conn) { _, _ = fmt.Fprint(conn, "PID 1\nPID 2\n") }, "PID 1)"},
		"bytes that are not text":     {func(conn net.Conn) { _, _ = fmt.Fprint(conn, "PID \xff\n") }, "PID \uFFFD"},
		"a line that is not finished": {func(conn net.Conn) { _, _ = fmt.Fprint(conn, "PID 1") }, "does not say"},
	} {
		t.Run(name, func(t *testing.T) {
			node := guardNode(t)
			occupy(t, node, "net", c.serve)
			err := newTestGuards(t, node, "/state").take("net", time.Hour)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("got %q; want one that contains %q", err, c.want)
			}
		})
	}
}

func TestAHolderIsKnownByItsStateFolder(t *testing.T) {
	long := "/state/" + strings.Repeat("ä", 1000)
	for _, dir := range []string{"/state/one", "/state, state folder /x", "/tab\there", long} {
		node := guardNode(t)
		held := newGuards(node, dir)
		if err := held.take("net", 0); err != nil {
			t.Fatal(err)
		}
		who := holderOf(guardName(node, "net"))
		if !HolderHas(who, dir) || HolderHas(who, "/state/on") || HolderHas(who, "one") {
			t.Errorf("%.100q does not stand for the state folder %.100q alone", who, dir)
		}
		held.release()
	}
}

// holds writes records of networks into a state folder, as a sidecar that was
// configured for them left them.
func (c Config) holds(t *testing.T, records ...record.Record) {
	t.Helper()
	j, err := journal.Open(c.StateDir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := j.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// heldIn is the record of an attachment in pool and network blue, whose older call
// context is of another network. Its next step is due much later.
func heldIn(network, older string) record.Record {
	conf := []byte("{}")
	return record.Record{
		ContainerID: "cilium-agent-health-0123456789abcdef", Owner: "health", Pool: "blue", Node: "node-1",
		State: record.Cooldown, Network: network, Created: time.Now(), ReleaseAt: time.Now().Add(time.Hour),
		Result:      call.Result{Addresses: []call.Address{{Prefix: netip.MustParsePrefix("10.1.2.3/24")}}},
		Invocations: []call.Invocation{{ContainerID: "a", Network: older, Config: conf}, {ContainerID: "b", Network: network, Config: conf}},
	}
}

// refusal is why a sidecar does not start; nil if it serves, and then it is stopped.
func refusal(t *testing.T, c Config) error {
	t.Helper()
	log, ended, stop := run(t, c)
	for !log.says("msg=Serving") {
		select {
		case <-log.lines:
		case err := <-ended:
			return err
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	return nil
}

func TestANetworkThatIsOnlyHeldIsGuardedToo(t *testing.T) {
	for _, network := range []string{"blue", "navy"} {
		t.Run(network, func(t *testing.T) {
			holder, other := valid(t), valid(t)
			other.NodeName = holder.NodeName
			holder.holds(t, heldIn("blue", "navy"))
			other.write(t, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"`+network+`","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local"}}]}`)

			log, ended, stop := run(t, holder) // with no pool of that network
			log.await(t, "msg=Serving", ended)
			err := refusal(t, other)
			if err == nil || !strings.Contains(err.Error(), holder.StateDir) || !strings.Contains(err.Error(), network) {
				t.Errorf("beside the one that holds addresses of it: %v; want an error that names network and state folder", err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}

			log, ended, stop = run(t, other)
			log.await(t, "msg=Serving", ended)
			err = refusal(t, holder)
			if err == nil || !strings.Contains(err.Error(), other.StateDir) || !strings.Contains(err.Error(), network) {
				t.Errorf("with records of a network that another one serves: %v; want an error that names network and state folder", err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
