package image

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// served is a sidecar that runs in a container of its image.
type served struct {
	harness.Client
	node      *harness.Node
	container working
	// options are what the container is given, but for its user.
	options []string
}

// serve runs the sidecar as a user in its image over the plugins, the configuration
// and the directories of a node, which are mounted where a pod would have them. It has no
// capability, and is stopped gracefully when the test ends.
func serve(t *testing.T, n *harness.Node, user string) served {
	t.Helper()
	run := filepath.Join(n.Dir, "run")
	n.Socket = filepath.Join(run, "delegated-ipam.sock")
	s := served{Client: n.Client(), node: n, container: from(t, "delegated-ipam"), options: []string{
		// With this variable it is in a pod, where leases of the container's own are refused.
		"--cap-drop=all", "--env=KUBERNETES_SERVICE_HOST=192.0.2.1", "--env=K8S_NODE_NAME=" + n.Name,
	}}
	for path, directory := range map[string]string{"/var/run/cilium": run, "/var/lib/delegated-ipam": n.StateDir, n.StoreDir: n.StoreDir} {
		own(t, directory, user)
		s.options = append(s.options, "--volume="+directory+":"+path)
	}
	for path, directory := range map[string]string{"/etc/cni/net.d": n.ConfDir, "/opt/cni/bin": n.BinDir, "/etc/machine-id": "/etc/machine-id"} {
		s.options = append(s.options, "--volume="+directory+":"+path+":ro")
	}
	s.start(t, user)
	return s
}

// own makes a directory of a user's.
func own(t *testing.T, directory, user string) {
	t.Helper()
	uid, gid := 0, 0
	if user == "65532:65532" {
		uid, gid = 65532, 65532
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(directory, uid, gid); err != nil {
		t.Fatal(err)
	}
}

func (s served) start(t *testing.T, user string) {
	t.Helper()
	var log bytes.Buffer
	cmd := s.container.command(s.container.isolated(s.as(user), "delegated-ipam", "serve", "--enable-ipv6=false", "--allow-gids=65532")...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		// buildah kills what it runs, so the sidecar itself is told to stop.
		if pid := s.pid(); pid > 0 {
			_ = unix.Kill(pid, unix.SIGTERM)
		} else {
			_ = cmd.Process.Kill()
		}
		if err := <-done; err != nil || t.Failed() {
			t.Errorf("the sidecar's end: %v\n%s", err, &log)
		}
	})
	harness.Eventually(t, "the sidecar to be ready", s.Ready)
}

// as are the options for a user.
func (s served) as(user string) []string { return append([]string{"--user=" + user}, s.options...) }

// pid is the sidecar's, as the socket tells it; 0 if nobody answers there.
func (s served) pid() int {
	conn, err := net.Dial("unix", s.Socket)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

// ask runs a command of the program beside the sidecar, as "kubectl exec" does.
func (s served) ask(t *testing.T, args ...string) string {
	t.Helper()
	return s.container.run(t, s.as("0:0"), append([]string{"delegated-ipam"}, args...)...)
}

// examine wants that doctor finds no error and that the leases are as listed. What it
// warns of may be this machine's, such as too little room.
func (s served) examine(t *testing.T) {
	t.Helper()
	out, err := s.container.command(s.container.isolated(s.as("0:0"), "delegated-ipam", "doctor", "-o", "json")...).Output()
	var findings []struct{ Check, State, Message string }
	if json.Unmarshal(out, &findings) != nil {
		t.Fatalf("doctor: %v\n%s", err, out)
	}
	leases := ""
	for _, f := range findings {
		if f.State == "error" {
			t.Errorf("%s: %s", f.Check, f.Message)
		}
		if f.Check == "leases" {
			leases = f.State
		}
	}
	if leases != "ok" {
		t.Errorf("the leases are %q:\n%s", leases, out)
	}
}

func TestTheImageServesHostLocalAsRootWithoutAnyCapability(t *testing.T) {
	archive(t, "delegated-ipam") // or there is nothing to do
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	s := serve(t, n, "0:65532")
	ip := s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4
	if got := strings.TrimSpace(s.ask(t, "allocate", "router")); got != ip {
		t.Errorf("the command says %q, the API %q", got, ip)
	}
	if out := s.ask(t, "list"); !strings.Contains(out, ip) {
		t.Errorf("%s is not in the list:\n%s", ip, out)
	}
	for _, kind := range []string{"startup", "ready", "live"} {
		s.ask(t, "probe", kind, "--timeout=30s") // what it answers, not how soon
	}
	s.examine(t)
	held := n.Leases(t)
	if len(held) != 1 || held[0].IP.String() != ip {
		t.Errorf("on the host host-local holds %v, want %s", held, ip)
	}
	// The bridge is another user of the socket's group.
	if out := s.container.run(t, s.as("65532:65532"), "delegated-ipam", "list"); !strings.Contains(out, ip) {
		t.Errorf("as the bridge's user: %s is not in the list:\n%s", ip, out)
	}
	stranger := s.container.command(s.container.isolated(s.as("65533:65533"), "delegated-ipam", "list")...)
	if out, err := stranger.CombinedOutput(); err == nil || !strings.Contains(string(out), "permission denied") {
		t.Errorf("as a stranger: %v\n%s", err, out)
	}
	s.ask(t, "release", "--all", "--yes")
	if left := n.Leases(t); len(left) != 0 {
		t.Errorf("host-local holds %v still", left)
	}
}

// The image's own user is enough where the plugin keeps nothing on the node.
func TestTheImageServesAPluginWithoutFilesAsNobody(t *testing.T) {
	c := from(t, "delegated-ipam")
	n := harness.NewNode(t)
	n.InstallPlugin(t, "static")
	n.WriteConf(t, "10-static.conflist", []byte(`{"cniVersion": "1.0.0", "name": "fixed", "plugins": [
	  {"type": "cilium-cni", "ipam": {"type": "static", "addresses": [{"address": "10.15.0.7/24"}]}}]}`))
	s := serve(t, n, c.config(t).User)
	if got := s.Allocate(t, harness.Request{Owner: "router"}).Addresses(); !slices.Equal(got, []string{"10.15.0.7"}) {
		t.Errorf("it got %v", got)
	}
}
