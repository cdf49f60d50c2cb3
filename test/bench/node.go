package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	network  = "pods"
	nodeName = "bench"

	// startTimeout is how long a process may take to start.
	startTimeout = 2 * time.Minute
)

// ipamSection is the configuration of host-local.
func ipamSection(store string) map[string]any {
	return map[string]any{
		"type": "host-local", "dataDir": store,
		"ranges": [][]map[string]string{{{"subnet": "10.15.0.0/16"}}},
	}
}

// node has the directories of one daemon.
type node struct {
	options
	name, dir string
}

// newNode makes the directories of a node, all on the file system of dir.
func (o options) newNode(name string) *node {
	n := &node{options: o, name: name, dir: filepath.Join(o.dir, name)}
	failIf(os.MkdirAll(n.path("net.d"), 0o755))
	n.writeNetwork(ipamSection(n.store()))
	return n
}

// writeNetwork writes the CNI configuration with an ipam section.
func (n *node) writeNetwork(ipam map[string]any) {
	list := must(json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": network,
		"plugins": []any{map[string]any{"type": "cilium-cni", "ipam": ipam}},
	}))
	failIf(os.WriteFile(n.path("net.d/05-cilium.conflist"), list, 0o644))
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }
func (n *node) store() string           { return n.path("store") }
func (n *node) log() string             { return n.path("log") }

// server is a running process with a socket.
type server struct {
	*client
	cmd    *exec.Cmd
	socket string
}

// daemon starts the daemon and waits until it is ready.
func (n *node) daemon(flags ...string) *server { return n.daemonAt(newSocket(), flags...) }

func (n *node) daemonAt(socket string, flags ...string) *server {
	log := must(os.Create(n.log()))
	defer log.Close()
	s := start(socket, log, n.binary, append([]string{
		"serve", "--socket-path=" + socket, "--state-dir=" + n.path("state"), "--cni-conf-dir=" + n.path("net.d"),
		"--cni-bin-dir=" + n.plugins, "--node-name=" + nodeName + "-" + n.name, "--enable-ipv6=false", "--local-router-ipv4=10.15.0.1",
		"--max-attachments=100000",
	}, flags...)...)
	s.await(s.ready)
	return s
}

// newSocket is the path of a socket: in the directory for temporary files, because
// the path of a checkout may be too long for one.
func newSocket() string { return filepath.Join(must(os.MkdirTemp("", "dip-bench-")), "s") }

// start starts a server. stderr is where its log goes.
func start(socket string, stderr *os.File, program string, args ...string) *server {
	s := &server{client: newClient(socket), cmd: exec.Command(program, args...), socket: socket}
	s.cmd.Env, s.cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, stderr
	failIf(s.cmd.Start())
	return s
}

// await waits until the server responds.
func (s *server) await(question func()) {
	for limit := time.Now().Add(startTimeout); ; time.Sleep(time.Millisecond) {
		err := catch(question)
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			defer s.stop()
			failIf(fmt.Errorf("%s did not answer in %s: %w", s.cmd, startTimeout, err))
		}
	}
}

// stop ends the server and waits for its end. It fails if the server ends with an error.
func (s *server) stop() {
	s.http.CloseIdleConnections()
	failIf(s.cmd.Process.Signal(syscall.SIGTERM))
	if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() > 0 {
		failIf(fmt.Errorf("%s: %w", s.cmd, err))
	}
	failIf(os.RemoveAll(filepath.Dir(s.socket)))
}

// seed allocates addresses for count owners.
func (s *server) seed(count int) {
	concurrently(clients, func(client int) {
		for i := client; i < count; i += clients {
			s.allocate(fmt.Sprintf("default/seeded-%d", i))
		}
	})
}
