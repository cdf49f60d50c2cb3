// Package nodelock keeps two sidecars of one node from serving the same network: two
// state directories would give one container ID two owners (docs/design/how-it-works.md, A second
// sidecar). A lock is a listening unix socket in the abstract namespace: every process in
// the node's network namespace sees it, and the kernel removes it with its process. A
// process that connects reads the description and the state directory of the holder.
package nodelock

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
)

const (
	// QueryTimeout bounds the query for the description of a holder, which is only shown.
	QueryTimeout = 5 * time.Second
	// maxLine and maxDir are how many bytes of a description are read, and how many of
	// them a state directory may take.
	maxLine = 1024
	maxDir  = 400

	// stateDirLabel separates the process from the state directory in a description.
	stateDirLabel = ", state directory "
	unknown       = "it does not identify itself"
)

// Locks are the locks that this process holds. Its methods may be called concurrently.
type Locks struct {
	node string
	// line is the description of this process.
	line string

	mu   sync.Mutex
	held map[string]net.Listener
	// holders has the last description of each other holder.
	holders map[string]string
}

// New returns an empty set of locks, for the sidecar of a node with the given state directory. process
// describes this process in at most 400 bytes, for example by its pod (journal.Holder).
func New(node, stateDir, process string) *Locks {
	return &Locks{
		node: node, held: map[string]net.Listener{}, holders: map[string]string{},
		line: logging.Printable(process) + stateDirLabel + printableDir(stateDir),
	}
}

// Acquire locks a network unless this process holds its lock already. The error describes the
// process that holds it, which is queried for at most wait; with 0, which a request passes, the
// description is the last one.
func (l *Locks) Acquire(network string, wait time.Duration) error {
	name := socketName(l.node, network)
	switch err := l.listen(network, name); {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another sidecar serves network %q on node %q already (%s); stop it, or give this one its own --node-name or network",
			network, l.node, l.holder(network, name, wait))
	case err != nil:
		return fmt.Errorf("node lock of network %q on node %q: %w", network, l.node, err)
	}
	return nil
}

// Release releases every lock.
func (l *Locks) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for network, listener := range l.held {
		_ = listener.Close()
		delete(l.held, network)
	}
}

// listen binds the socket of a network's lock unless this process has.
func (l *Locks) listen(network, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[network] != nil {
		return nil
	}
	listener, err := net.Listen("unix", name)
	if err != nil {
		return err
	}
	l.held[network] = listener
	go l.serve(listener)
	return nil
}

// serve sends the description of this process to each client until the lock is released.
func (l *Locks) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		// The description is only shown, so a lost one is harmless.
		_ = conn.SetDeadline(time.Now().Add(QueryTimeout))
		_, _ = fmt.Fprintln(conn, l.line)
		_ = conn.Close()
	}
}

// holder returns the description of the holder of a lock.
func (l *Locks) holder(network, name string, wait time.Duration) string {
	description := ""
	if wait > 0 {
		description = cmp.Or(query(name, wait), "it has ended since")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holders[network] = cmp.Or(description, l.holders[network])
	return cmp.Or(l.holders[network], "it has not identified itself yet")
}

// Holder returns the description of the process in this network namespace that holds the lock of a
// network on a node; empty if no process does.
func Holder(node, network string) string { return query(socketName(node, network), QueryTimeout) }

// HolderHas reports whether a description is of a sidecar with the given state directory.
func HolderHas(description, stateDir string) bool {
	_, directory, ok := strings.Cut(description, stateDirLabel)
	return ok && directory == printableDir(stateDir)
}

// printableDir returns a state directory as a description has it.
func printableDir(dir string) string {
	dir = logging.Printable(dir)
	return strings.ToValidUTF8(dir[:min(len(dir), maxDir)], "")
}

// socketName hashes node and network because an abstract name has at most 107 bytes.
func socketName(node, network string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d:%s%s", len(node), node, network)))
	return "@delegated-ipam/" + hex.EncodeToString(sum[:16])
}

// query reads the description of the holder of a lock; empty if the lock is free. Any process of the
// network namespace can be the holder, so the read is bounded.
func query(name string, limit time.Duration) string {
	conn, err := net.DialTimeout("unix", name, limit)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return ""
	}
	if err != nil {
		return unknown
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit))
	sent, _ := io.ReadAll(io.LimitReader(conn, maxLine)) // what precedes an error counts
	if line, _, ok := strings.Cut(string(sent), "\n"); ok {
		return logging.Printable(line)
	}
	if peer, err := unixsock.PeerOf(conn); err == nil {
		return fmt.Sprintf("PID %d of user %d; %s", peer.PID, peer.UID, unknown)
	}
	return unknown
}
