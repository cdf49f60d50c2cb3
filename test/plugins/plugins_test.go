// Package plugins follows docs/reference/plugins.md, "My plugin is not in the table", with real plugins that few people
// run: "profile try", a daemon with the proposal, restarts, and ADDs whose caller is killed. "make plugin-test" builds
// them and runs the tests in separate namespaces; plain "go test" skips them.
package plugins

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

func TestMain(m *testing.M) {
	if !cluster.Namespaced() {
		os.Exit(m.Run()) // every test is skipped
	}
	harness.Main(m)
}

// networkName is the name of the CNI network, which is a part of the keys of some plugins.
const networkName = "pods"

// newNode returns a node with a real plugin. Its store must equal the daemon's list at the end of the test.
func newNode(t *testing.T, pluginType string, ipam map[string]any, store func() ([]oracle.Lease, error)) *harness.Node {
	t.Helper()
	cluster.SkipUnless(t, "plugin-test")
	n := harness.NewNode(t)
	program, err := os.ReadFile(filepath.Join(cluster.MustEnv(t, "PLUGIN_TEST_DIR", "plugin-test"), pluginType))
	check.Must(t, err)
	harness.WriteProgram(t, filepath.Join(n.BinDir, pluginType), program)
	n.WriteNetwork(t, "05-pods", harness.Network{Name: networkName, CNIVersion: "1.0.0", Plugin: pluginType, IPAM: ipam})
	n.Store = store
	n.Flags = []string{"--enable-ipv6=false"}
	return n
}

// report is the output of profile try -o json.
type report struct {
	Proposal    map[string]any
	Differences []struct{ Field string }
	Leftovers   []any
	Notes       []string
}

// try runs profile try, which must release everything, and wants fields of the proposal.
func try(t *testing.T, n *harness.Node, pluginType string, want map[string]string) report {
	t.Helper()
	out := n.Command(t, "profile", "try", pluginType, "-o", "json", "--cni-conf-dir="+n.ConfDir, "--cni-bin-dir="+n.BinDir)
	var r report
	if err := json.Unmarshal([]byte(out.Stdout), &r); err != nil || out.ExitCode != 0 || len(r.Leftovers) > 0 {
		t.Fatalf("exit code %d, %q, %q: %v; want 0 and a report without leftovers", out.ExitCode, out.Stdout, out.Stderr, err)
	}
	for field, want := range want {
		if got := fmt.Sprint(r.Proposal[field]); got != want {
			t.Errorf("profile try proposes %s %s; want %s", field, got, want)
		}
	}
	if left := n.Leases(t); len(left) > 0 {
		t.Errorf("profile try has left %v", left)
	}
	return r
}

// corrected writes the proposal with corrections, which the page leaves to the user, into a file for --plugin-profile.
func corrected(t *testing.T, n *harness.Node, proposal, corrections map[string]any) (flag string) {
	t.Helper()
	proposal = maps.Clone(proposal)
	maps.Copy(proposal, corrections)
	data, err := json.Marshal(proposal)
	check.Must(t, err)
	file := filepath.Join(n.Dir, "profile.json")
	check.Must(t, os.WriteFile(file, data, 0o644))
	return "--plugin-profile=" + file
}

var owners = []string{"router", "health", "ingress", "default/app-1"}

// allocateAll allocates for each owner, concurrently, and returns the addresses, which must be distinct.
func allocateAll(t *testing.T, s *harness.Daemon) (ips []string) {
	t.Helper()
	var requests []harness.Request
	for _, owner := range owners {
		requests = append(requests, harness.Request{Owner: owner})
	}
	for _, response := range s.AllocateConcurrently(t, requests) {
		ips = append(ips, response.Allocation(t).Addresses()...)
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(ips))); len(distinct) != len(owners) {
		t.Fatalf("the owners %q got %q; want an address each", owners, ips)
	}
	return ips
}

func wantSame(t *testing.T, s *harness.Daemon, want []string) {
	t.Helper()
	if got := allocateAll(t, s); !slices.Equal(got, want) {
		t.Errorf("the owners %q got %q; want %q again", owners, got, want)
	}
}

// backend stalls what a plugin asks, and resumes it. Waiting returns when an ADD waits.
type backend interface {
	stall(t *testing.T)
	waiting(t *testing.T)
	resume(t *testing.T)
}

// testServe allocates, repeats, restarts, kills the daemon and its plugin in the middle of an ADD, and releases:
// the plugin's store must equal the daemon's list after each step.
func testServe(t *testing.T, n *harness.Node, b backend, flags ...string) {
	t.Helper()
	s := n.Start(t, flags...)
	held := allocateAll(t, s)
	wantSame(t, s, held)
	s.WaitConsistent(t)
	s.Stop(t)
	s = n.Start(t, flags...)
	wantSame(t, s, held)

	for _, kill := range []struct {
		what string
		end  func() *harness.Daemon
	}{
		{"the daemon is killed, and the plugin goes on", func() *harness.Daemon {
			s.Kill(t)
			b.resume(t)
			return n.Start(t, flags...)
		}},
		{"the plugin is killed", func() *harness.Daemon {
			killPlugins(t, n)
			b.resume(t)
			return s
		}},
	} {
		b.stall(t)
		n.ResetHistory() // whether the interrupted request allocates is open
		done := make(chan struct{})
		client := n.Client()
		go func() {
			_, _ = client.Try("POST", "/v1/ipam?owner=default/killed")
			close(done)
		}()
		b.waiting(t)
		s = kill.end()
		<-done
		wantSame(t, s, held)
		s.WaitConsistent(t)
		// Again, or still: the same owner holds one address.
		killed := s.AllocateFor(t, "default/killed")
		s.WaitConsistent(t)
		if left := n.Leases(t); len(left) != len(held)+1 {
			t.Errorf("%s: the plugin has %v; want %d leases", kill.what, left, len(held)+1)
		}
		s.Release(t, killed...)
	}
	s.Release(t, held...)
	s.WaitConsistent(t)
	if left := n.Leases(t); len(left) > 0 {
		t.Errorf("the plugin has %v; want nothing", left)
	}
}

// gate lets requests pass, unless it is stalled.
type gate struct {
	mu             sync.Mutex
	entered, ended chan struct{}
}

func (g *gate) stall(*testing.T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entered, g.ended = make(chan struct{}, 100), make(chan struct{})
}

func (g *gate) waiting(t *testing.T) {
	select {
	case <-g.entered:
	case <-t.Context().Done():
	}
}

func (g *gate) resume(*testing.T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.ended)
	g.ended = nil
}

// pass waits while the gate is stalled.
func (g *gate) pass() {
	g.mu.Lock()
	entered, ended := g.entered, g.ended
	g.mu.Unlock()
	if ended != nil {
		entered <- struct{}{}
		<-ended
	}
}

// killPlugins kills the processes of the node's plugins.
func killPlugins(t *testing.T, n *harness.Node) {
	t.Helper()
	for _, pid := range pluginsOf(t, n) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// pluginsOf returns the processes of the node's plugins.
func pluginsOf(t *testing.T, n *harness.Node) (pids []int) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/exe")
	check.Must(t, err)
	for _, exe := range processes {
		if program, err := os.Readlink(exe); err == nil && filepath.Dir(program) == n.BinDir {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(exe)))
			check.Must(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}
