// Package nodelock keeps two sidecars of one node from serving the same network: two
// state directories would give one container ID two owners (docs/design/how-it-works.md, A second
// sidecar). A lock is a listening unix socket in the abstract namespace: every process in
// the node's network namespace sees it, and the kernel removes it with its process. A
// process that connects reads the description and the state directory of the holder.
package nodelock

import (
	"cmp"
	"context"
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
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/cachedprobe"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
)

const (
	// QueryTimeout bounds the query for the description of a holder, which is only
	// shown.
	QueryTimeout = time.Second
	// holderTTL is how long a description is reused.
	holderTTL = 5 * time.Second
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

	mu      sync.Mutex
	held    map[string]net.Listener
	holders map[string]*cachedprobe.Probe[string]
	queries sync.WaitGroup
}

// New returns an empty set of locks, for the sidecar of a node with the given state directory. process
// describes this process in at most 400 bytes, for example by its pod (journal.Holder).
func New(node, stateDir, process string) *Locks {
	return &Locks{
		node: node, held: map[string]net.Listener{}, holders: map[string]*cachedprobe.Probe[string]{},
		line: logging.Printable(process) + stateDirLabel + printableDir(stateDir),
	}
}

// Acquire locks a network unless this process holds its lock already. The error names the
// process that holds it, as far as that responds within wait; a request passes 0.
func (l *Locks) Acquire(network string, wait time.Duration) error {
	name := socketName(l.node, network)
	switch err := l.listen(network, name); {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another sidecar serves network %q on node %q already (%s); stop it, or give this one its own --node-name or network",
			network, l.node, l.holder(name, wait))
	case err != nil:
		return fmt.Errorf("node lock of network %q on node %q: %w", network, l.node, err)
	}
	return nil
}

// Release releases every lock.
func (l *Locks) Release() {
	l.mu.Lock()
	for network, listener := range l.held {
		_ = listener.Close()
		delete(l.held, network)
	}
	l.mu.Unlock()
	l.queries.Wait()
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

// holder returns the last description of the holder of a lock. The holder is queried in
// the background, by one query at a time.
func (l *Locks) holder(name string, wait time.Duration) string {
	l.mu.Lock()
	p, ok := l.holders[name]
	if !ok {
		p = &cachedprobe.Probe[string]{
			Run:        func() string { return cmp.Or(query(name), "it has ended since") },
			TTL:        func(string) time.Duration { return holderTTL },
			StuckAfter: QueryTimeout, Running: &l.queries,
		}
		l.holders[name] = p
	}
	l.mu.Unlock()
	p.Refresh()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	description, state := p.Result(ctx)
	if state != cachedprobe.Fresh {
		return "it has not identified itself yet"
	}
	return description
}

// Holder returns the description of the process that holds the lock of a network on a
// node, as far as it is visible in this network namespace; empty if no process does.
func Holder(node, network string) string { return query(socketName(node, network)) }

// HolderHas reports whether a description is that of a sidecar with the given state directory.
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

// query reads the description of the holder of a lock; empty if the lock is free. Any
// process of the network namespace can be the holder, so the read is bounded.
func query(name string) string {
	conn, err := net.DialTimeout("unix", name, QueryTimeout)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return ""
	}
	if err != nil {
		return unknown
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(QueryTimeout))
	sent, _ := io.ReadAll(io.LimitReader(conn, maxLine)) // what precedes an error counts
	if line, _, ok := strings.Cut(string(sent), "\n"); ok {
		return logging.Printable(line)
	}
	if peer, err := unixsock.PeerOf(conn); err == nil {
		return fmt.Sprintf("PID %d of user %d; %s", peer.PID, peer.UID, unknown)
	}
	return unknown
}
