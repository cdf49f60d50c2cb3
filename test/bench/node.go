package main

import (
	"encoding/json"
	"errors"
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
	subnet   = "10.15.0.0/16"

	// processTimeout is how long a process may take to start or to end.
	processTimeout = 2 * time.Minute
	// pollInterval is how often that is checked.
	pollInterval = time.Millisecond
)

// ipamSection is the configuration of host-local.
func ipamSection(store string) map[string]any {
	return map[string]any{
		"type": "host-local", "dataDir": store,
		"ranges": [][]map[string]string{{{"subnet": subnet}}},
	}
}

// node has the directories of one sidecar.
type node struct {
	options
	name, dir string
}

// newNode makes the directories of a node, all on the file system of dir.
func (o options) newNode(name string) (*node, error) {
	n := &node{options: o, name: name, dir: filepath.Join(o.dir, name)}
	if err := os.RemoveAll(n.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(n.confDir(), 0o755); err != nil {
		return nil, err
	}
	return n, n.writeNetwork(ipamSection(n.store()))
}

// writeNetwork writes the CNI configuration with an ipam section.
func (n *node) writeNetwork(ipam map[string]any) error {
	list, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": network,
		"plugins": []any{map[string]any{"type": "cilium-cni", "ipam": ipam}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.confDir(), "05-cilium.conflist"), list, 0o644)
}

func (n *node) confDir() string { return filepath.Join(n.dir, "net.d") }
func (n *node) store() string   { return filepath.Join(n.dir, "store") }
func (n *node) state() string   { return filepath.Join(n.dir, "state") }
func (n *node) log() string     { return filepath.Join(n.dir, "log") }

// server is a running process with a socket.
type server struct {
	*client
	cmd    *exec.Cmd
	socket string
	// ended is closed when the process has ended.
	ended chan struct{}
}

// sidecar starts the sidecar and waits until it is ready.
func (n *node) sidecar(flags ...string) (*server, error) {
	s, err := n.launch(flags...)
	if err != nil {
		return nil, err
	}
	return s, s.await(s.ready)
}

// launch starts the sidecar without waiting.
func (n *node) launch(flags ...string) (*server, error) {
	socket, err := newSocket()
	if err != nil {
		return nil, err
	}
	return n.launchAt(socket, flags...)
}

func (n *node) launchAt(socket string, flags ...string) (*server, error) {
	log, err := os.OpenFile(n.log(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return start(socket, log, n.binary, append([]string{
		"serve", "--socket-path=" + socket, "--state-dir=" + n.state(), "--cni-conf-dir=" + n.confDir(),
		"--cni-bin-dir=" + n.plugins, "--node-name=" + nodeName + "-" + n.name, "--enable-ipv6=false", "--local-router-ipv4=10.15.0.1",
	}, flags...)...)
}

// newSocket is the path of a socket: in the directory for temporary files, because
// the path of a checkout may be too long for one.
func newSocket() (string, error) {
	dir, err := os.MkdirTemp("", "dip-bench-")
	return filepath.Join(dir, "s"), err
}

// start starts a server. stderr is where its log goes.
func start(socket string, stderr *os.File, program string, args ...string) (*server, error) {
	s := &server{client: newClient(socket), cmd: exec.Command(program, args...), socket: socket, ended: make(chan struct{})}
	s.cmd.Env, s.cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, stderr
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // how it ended is in ProcessState
	}()
	return s, nil
}

// await waits until the server responds.
func (s *server) await(question func() error) error {
	err := question()
	limit := time.After(processTimeout)
	for ; err != nil; err = question() {
		select {
		case <-s.ended:
			return fmt.Errorf("%s: %s; last answer: %w", s.cmd, s.cmd.ProcessState, err)
		case <-limit:
			return fmt.Errorf("%s did not answer in %s: %w", s.cmd, processTimeout, errors.Join(err, s.stop()))
		case <-time.After(pollInterval):
		}
	}
	return nil
}

// stop ends the server and waits for its end.
func (s *server) stop() error {
	s.http.CloseIdleConnections()
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.ended
	return errors.Join(err, os.RemoveAll(filepath.Dir(s.socket)))
}
