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

// node has the directories of one daemon.
type node struct {
	options
	name, dir string
}

// newNode makes the directories of a node, all on the file system of dir.
func (o options) newNode(name string) *node {
	n := &node{options: o, name: name, dir: filepath.Join(o.dir, name)}
	failIf(os.RemoveAll(n.dir))
	failIf(os.MkdirAll(n.confDir(), 0o755))
	n.writeNetwork(ipamSection(n.store()))
	return n
}

// writeNetwork writes the CNI configuration with an ipam section.
func (n *node) writeNetwork(ipam map[string]any) {
	list := must(json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": network,
		"plugins": []any{map[string]any{"type": "cilium-cni", "ipam": ipam}},
	}))
	failIf(os.WriteFile(filepath.Join(n.confDir(), "05-cilium.conflist"), list, 0o644))
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

// daemon starts the daemon and waits until it is ready.
func (n *node) daemon(flags ...string) *server { return n.daemonAt(newSocket(), flags...) }

func (n *node) daemonAt(socket string, flags ...string) *server {
	log := must(os.OpenFile(n.log(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644))
	defer log.Close()
	s := start(socket, log, n.binary, append([]string{
		"serve", "--socket-path=" + socket, "--state-dir=" + n.state(), "--cni-conf-dir=" + n.confDir(),
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
	s := &server{client: newClient(socket), cmd: exec.Command(program, args...), socket: socket, ended: make(chan struct{})}
	s.cmd.Env, s.cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, stderr
	failIf(s.cmd.Start())
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // how it ended is in ProcessState
	}()
	return s
}

// await waits until the server responds.
func (s *server) await(question func()) {
	limit := time.After(processTimeout)
	for err := catch(question); err != nil; err = catch(question) {
		select {
		case <-s.ended:
			failIf(fmt.Errorf("%s: %s; last answer: %w", s.cmd, s.cmd.ProcessState, err))
		case <-limit:
			failIf(fmt.Errorf("%s did not answer in %s: %w", s.cmd, processTimeout, errors.Join(err, catch(s.stop))))
		case <-time.After(pollInterval):
		}
	}
}

// stop ends the server and waits for its end. It fails if the server has ended before. Deferred, it adds its
// error to the one that ends the benchmark.
func (s *server) stop() {
	s.http.CloseIdleConnections()
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.ended
	err = errors.Join(err, os.RemoveAll(filepath.Dir(s.socket)))
	switch r := recover().(type) {
	case nil:
		failIf(err)
	case failure:
		failIf(errors.Join(r.error, err))
	default:
		panic(r)
	}
}
