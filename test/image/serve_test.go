package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// served is a daemon in a container of its image.
type served struct {
	harness.Client
	node      *harness.Node
	container container
	// options are the options of the container, without its user.
	options []string
}

// serve runs the daemon in its image as a user and without capabilities. The plugins, the
// configuration and the directories of a node are mounted as in a pod. It is stopped with the test.
func serve(t *testing.T, n *harness.Node, user string) served {
	t.Helper()
	run := filepath.Join(n.Dir, "run")
	n.Socket = filepath.Join(run, "ipam.sock")
	s := served{Client: n.Client(), node: n, container: from(t, "delegated-ipam"), options: []string{
		// This variable marks a pod, in which leases in the container's file system are refused.
		"--cap-drop=all", "--env=KUBERNETES_SERVICE_HOST=192.0.2.1", "--env=K8S_NODE_NAME=" + n.Name,
	}}
	uid := 0
	if user == "60913:60913" {
		uid = 60913
	}
	for path, dir := range map[string]string{"/var/run/delegated-ipam": run, "/var/lib/delegated-ipam": n.StateDir, n.StoreDir: n.StoreDir} {
		check.Must(t, errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, uid, uid)))
		s.options = append(s.options, "--volume="+dir+":"+path)
	}
	for path, directory := range map[string]string{"/etc/cni/net.d": n.ConfDir, "/opt/cni/bin": n.BinDir, "/etc/machine-id": "/etc/machine-id"} {
		s.options = append(s.options, "--volume="+directory+":"+path+":ro")
	}
	s.start(t, user)
	return s
}

func (s served) start(t *testing.T, user string) {
	t.Helper()
	var log bytes.Buffer
	cmd := s.container.command(s.container.isolated(s.as(user), "delegated-ipam", "serve", "--enable-ipv6=false", "--allow-gids=60913")...)
	cmd.Stdout, cmd.Stderr = &log, &log
	check.Must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		// buildah would kill the daemon, so the signal goes to the daemon's process.
		if pid := s.pid(); pid > 0 {
			_ = unix.Kill(pid, unix.SIGTERM)
		} else {
			_ = cmd.Process.Kill()
		}
		if err := <-done; err != nil || t.Failed() {
			t.Errorf("the daemon ended: %v\n%s", err, &log)
		}
	})
	harness.Eventually(t, "the daemon to be ready", s.Ready)
}

// as returns the options with a user.
func (s served) as(user string) []string { return append([]string{"--user=" + user}, s.options...) }

// pid returns the daemon's process ID from the socket; 0 without a peer.
func (s served) pid() int {
	conn, err := net.Dial("unix", s.Socket)
	if err != nil {
		return 0
	}
	defer conn.Close()
	file, err := conn.(*net.UnixConn).File()
	if err != nil {
		return 0
	}
	defer file.Close()
	peer, err := unix.GetsockoptUcred(int(file.Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(peer.Pid)
}

// exec runs a command in the container, as "kubectl exec" does.
func (s served) exec(t *testing.T, args ...string) string {
	t.Helper()
	return s.container.run(t, s.as("0:0"), append([]string{"delegated-ipam"}, args...)...)
}

// wantNoDoctorErrors wants consistent leases and no errors; warnings may depend on the machine.
func (s served) wantNoDoctorErrors(t *testing.T) {
	t.Helper()
	out, err := s.container.command(s.container.isolated(s.as("0:0"), "delegated-ipam", "doctor", "-o", "json")...).Output()
	var findings []struct{ Check, State, Message string }
	if json.Unmarshal(out, &findings) != nil {
		t.Fatalf("doctor: %v\n%s", err, out)
	}
	leases := false
	for _, f := range findings {
		if f.State == "error" {
			t.Errorf("%s: %s", f.Check, f.Message)
		}
		leases = leases || f.Check == "leases" && f.State == "ok"
	}
	if !leases {
		t.Errorf("the check of leases is not ok:\n%s", out)
	}
}

func TestImageServesHostLocal(t *testing.T) {
	archive(t, "delegated-ipam") // skips where images cannot run
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	s := serve(t, n, "0:60913")
	ip := s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4
	if got := strings.TrimSpace(s.exec(t, "allocate", "router")); got != ip {
		t.Errorf("the command prints %q, and the API returns %q", got, ip)
	}
	if out := s.exec(t, "list"); !strings.Contains(out, ip) {
		t.Errorf("the list lacks %s:\n%s", ip, out)
	}
	for _, kind := range []string{"startup", "ready", "live"} {
		s.exec(t, "probe", kind, "--timeout=30s") // the machine may be busy
	}
	s.wantNoDoctorErrors(t)
	held := n.Leases(t)
	if len(held) != 1 || held[0].IP.String() != ip {
		t.Errorf("on the host host-local has the leases %v; want %s", held, ip)
	}
	// The bridge runs as another user in the socket's group.
	if out := s.container.run(t, s.as("60913:60913"), "delegated-ipam", "list"); !strings.Contains(out, ip) {
		t.Errorf("as the user of the bridge: the list lacks %s:\n%s", ip, out)
	}
	foreign := s.container.command(s.container.isolated(s.as("60914:60914"), "delegated-ipam", "list")...)
	if out, err := foreign.CombinedOutput(); err == nil || !strings.Contains(string(out), "permission denied") {
		t.Errorf("as a foreign user: %v\n%s; want permission denied", err, out)
	}
	s.exec(t, "release", "--all", "--yes")
	if left := n.Leases(t); len(left) != 0 {
		t.Errorf("after the release host-local has the leases %v", left)
	}
}

// The image's default user suffices for a plugin without files on the node.
func TestImageServesUnprivileged(t *testing.T) {
	c := from(t, "delegated-ipam")
	n := harness.NewNode(t)
	n.InstallPlugin(t, "static")
	n.WriteConf(t, "10-static.conflist", []byte(`{"cniVersion": "1.0.0", "name": "fixed", "plugins": [
	  {"type": "cilium-cni", "ipam": {"type": "static", "addresses": [{"address": "10.15.0.7/24"}]}}]}`))
	s := serve(t, n, c.inspect(t).Config.User)
	if got := s.Allocate(t, harness.Request{Owner: "router"}).Addresses(); !slices.Equal(got, []string{"10.15.0.7"}) {
		t.Errorf("got %v; want 10.15.0.7", got)
	}
}
