package plugins

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// spiderpoolAgent imitates spiderpool-agent for stateless pods, by the source of v1.2.2 (pkg/ipam): an allocation is of
// the UID of an existing pod and an interface, and a release of an existing pod, or without a UID, does nothing.
type spiderpoolAgent struct {
	gate
	// pods are the UIDs of the existing pods by namespace/name; held the allocations by UID and interface.
	mu   sync.Mutex
	pods map[string]string
	held map[string]oracle.Lease
}

func newSpiderpoolAgent(t *testing.T, socket string) *spiderpoolAgent {
	t.Helper()
	a := &spiderpoolAgent{pods: map[string]string{}, held: map[string]oracle.Lease{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/ipam/healthy", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/ipam/ip", a.allocate)
	mux.HandleFunc("DELETE /v1/ipam/ip", a.release)
	listener, err := net.Listen("unix", socket)
	check.Must(t, err)
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return a
}

type spiderpoolArgs struct{ ContainerID, IfName, PodNamespace, PodName, PodUID string }

func (a *spiderpoolAgent) allocate(w http.ResponseWriter, r *http.Request) {
	var args spiderpoolArgs
	err := json.NewDecoder(r.Body).Decode(&args)
	a.pass()
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := args.PodNamespace + "/" + args.PodName
	uid := a.pods[pod]
	if err != nil || uid == "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%q", "failed to get Pod "+pod+": not found")
		return
	}
	key := uid + " " + args.IfName
	lease, held := a.held[key]
	if !held {
		lease = oracle.Lease{Network: networkName, IP: a.free(), ContainerID: args.ContainerID, Interface: args.IfName}
		a.held[key] = lease
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"ips": [{"address": "%s/24", "nic": %q, "version": 4}]}`, lease.IP, args.IfName)
}

// free returns the lowest free address.
func (a *spiderpoolAgent) free() netip.Addr {
	ip := netip.MustParseAddr("10.15.0.10")
	for taken := true; taken; {
		taken = false
		for _, l := range a.held {
			if l.IP == ip {
				ip, taken = ip.Next(), true
			}
		}
	}
	return ip
}

func (a *spiderpoolAgent) release(_ http.ResponseWriter, r *http.Request) {
	var args spiderpoolArgs
	if json.NewDecoder(r.Body).Decode(&args) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pods[args.PodNamespace+"/"+args.PodName] == "" {
		delete(a.held, args.PodUID+" "+args.IfName)
	}
}

func (a *spiderpoolAgent) setPod(pod, uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods[pod] = uid
}

func (a *spiderpoolAgent) leases() (all []oracle.Lease, _ error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.held {
		all = append(all, l)
	}
	return all, nil
}

func TestSpiderpool(t *testing.T) {
	network := func(n *harness.Node) harness.Network {
		return harness.Network{Name: networkName, CNIVersion: "1.0.0", Plugin: "spiderpool", IPAM: map[string]any{
			"ipam_unix_socket_path": filepath.Join(n.Dir, "agent.sock"), "log_file_path": filepath.Join(n.Dir, "log"),
		}}
	}
	node := func(t *testing.T) (*harness.Node, *spiderpoolAgent) {
		n := newNode(t, "spiderpool", nil, nil)
		n.WriteNetwork(t, "05-pods", network(n))
		n.Flags = append(n.Flags, "--cni-netns="+harness.NetNSPath(harness.NewNetNS(t)))
		a := newSpiderpoolAgent(t, filepath.Join(n.Dir, "agent.sock"))
		n.Store = a.leases
		return n, a
	}
	profileTry := func(t *testing.T, n *harness.Node, pluginType, want string) {
		t.Helper()
		out := n.Command(t, append([]string{"profile", "try", pluginType, "--cni-conf-dir=" + n.ConfDir, "--cni-bin-dir=" + n.BinDir}, n.Flags[1:]...)...)
		if out.ExitCode != 1 || !strings.Contains(out.Stderr, want) {
			t.Errorf("exit code %d: %s; want 1 and %q", out.ExitCode, out.Stderr, want)
		}
	}
	t.Run("profile try", func(t *testing.T) {
		n, _ := node(t)
		profileTry(t, n, "spiderpool", "must not be tried: it allocates for existing pods only")
		// As a plugin without a profile.
		check.Must(t, os.Link(filepath.Join(n.BinDir, "spiderpool"), filepath.Join(n.BinDir, "my-ipam")))
		unlisted := network(n)
		unlisted.Plugin = "my-ipam"
		n.WriteNetwork(t, "05-pods", unlisted)
		profileTry(t, n, "my-ipam", "Does the plugin allocate for existing pods alone?")
		n.Flags = n.Flags[:1]
		profileTry(t, n, "my-ipam", "--cni-netns names it")
	})
	t.Run("serve", func(t *testing.T) {
		n, a := node(t)
		s := n.Launch(t)
		s.WaitServing(t)
		s.WaitNotReady(t, "reports success and frees nothing")
		s.Stop(t)
		n.Flags = append(n.Flags, "--accept-unsafe-plugin")
		for i := range 5 {
			name := fmt.Sprintf("sandbox-%d", 1+i)
			harness.IP(t, "netns", "add", name)
			t.Cleanup(func() { harness.IP(t, "netns", "del", name) })
		}
		pods := n.PodsThrough(t, "05-pods", network(n))
		s = n.Start(t)
		s.TryAllocate(t, harness.Request{Owner: "router"}).WantError(t, http.StatusBadGateway, "failed to get Pod delegated-ipam/")

		pod := func(name, uid string) harness.Pods {
			a.setPod("default/"+name, uid)
			p := pods
			p.Name = name + ";K8S_POD_UID=" + uid
			return p
		}
		app := pod("app-1", "uid-1")
		held := app.Add(t, "sandbox-1")
		s.WaitConsistent(t)
		s.Kill(t)
		s = n.Start(t)
		s.WaitConsistent(t)
		// The DEL of an existing pod frees nothing: its next sandbox has the same address.
		app.Del(t, "sandbox-1")
		if left := n.Leases(t); len(left) != 1 {
			t.Errorf("the agent has %v; want one lease after the DEL of an existing pod", left)
		}
		if got := app.Add(t, "sandbox-2"); !slices.Equal(got, held) {
			t.Errorf("the pod's second sandbox got %q; want %q", got, held)
		}
		a.setPod("default/app-1", "")
		app.Del(t, "sandbox-2")
		s.WaitConsistent(t)

		// The daemon is killed in the middle of an ADD, and the plugin goes on: the runtime's next one has its address.
		app = pod("app-2", "uid-2")
		a.stall(t)
		end := app.Begin(t, "ADD", "sandbox-3", nil)
		a.waiting(t)
		s.Kill(t)
		end()
		a.resume(t)
		s = n.Start(t)
		app.Add(t, "sandbox-4")
		if left := n.Leases(t); len(left) != 1 {
			t.Errorf("the agent has %v; want one lease for two ADDs of a pod", left)
		}
		a.setPod("default/app-2", "")
		app.Del(t, "sandbox-4")
		s.WaitConsistent(t)

		// Without K8S_POD_UID nothing is freed. The agent's own garbage collection does that.
		a.setPod("default/app-3", "uid-3")
		pods.Name = "app-3"
		pods.Add(t, "sandbox-5")
		a.setPod("default/app-3", "")
		pods.Del(t, "sandbox-5")
		if left := n.Leases(t); len(left) != 1 {
			t.Errorf("the agent has %v; want one lease after a DEL without K8S_POD_UID", left)
		}
		clear(a.held)
	})
}
