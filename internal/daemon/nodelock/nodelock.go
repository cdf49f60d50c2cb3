// Package nodelock keeps two daemons of one node from serving the same network: two
// state directories would give one container ID two owners (docs/design/how-it-works.md, A second
// daemon). A lock is a listening unix socket in the abstract namespace: every process in
// the node's network namespace sees it, and the kernel removes it with its process. A
// process that connects reads the description and the state directory of the holder.
package nodelock

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
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

	// connectInterval is the time between two attempts to connect to a socket with a full queue.
	connectInterval = 10 * time.Millisecond
	// listeningFlags are the flags of a listening socket in /proc/net/unix (__SO_ACCEPTCON).
	listeningFlags = "00010000"
	unknown        = "it does not identify itself"
)

// Locks are the locks that this process holds. Its methods may be called concurrently.
type Locks struct {
	node string
	// line is the description of this process.
	line string

	// acquiring is held while a lock is acquired.
	acquiring sync.Mutex

	mu   sync.Mutex
	held map[string]net.Listener
	// holders has the last description of each other holder.
	holders map[string]string
}

// New returns an empty set of locks, for the daemon of a node with the given state directory. process
// describes this process in at most 400 bytes, for example by its pod (journal.Holder).
func New(node, stateDir, process string) *Locks {
	return &Locks{
		node: node, held: map[string]net.Listener{}, holders: map[string]string{},
		line: logging.Printable(process) + stateDirLabel + printableDir(stateDir),
	}
}

// Acquire locks a network unless this process holds its lock already. The error describes the
// daemon that holds it, which is queried for at most wait; with 0, which a request passes, the
// description is the last one.
func (l *Locks) Acquire(network string, wait time.Duration) error {
	if l.holds(network) {
		return nil
	}
	holder, err := l.acquire(network, wait)
	switch {
	case err != nil:
		return fmt.Errorf("node lock of network %q on node %q: %w", network, l.node, err)
	case holder != nil:
		defer holder.Close()
		return fmt.Errorf("another daemon serves network %q on node %q already (%s); stop it, or give this one its own --node-name or network",
			network, l.node, l.describe(network, holder, wait))
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

// acquire binds a socket of a network's lock unless this process has. It returns a connection to the
// daemon that has the lock; nil if none does. The socket is bound before others are looked for, so
// of two daemons that start concurrently at least one finds the other.
func (l *Locks) acquire(network string, wait time.Duration) (holder net.Conn, err error) {
	l.acquiring.Lock()
	defer l.acquiring.Unlock()
	if l.holds(network) {
		return nil, nil
	}
	first := socketName(l.node, network)
	own := first
	listener, err := net.Listen("unix", own)
	if errors.Is(err, syscall.EADDRINUSE) {
		if holder, err = find(first, "", wait); holder != nil || err != nil {
			return holder, err
		}
		own = first + "/" + rand.Text()
		listener, err = net.Listen("unix", own)
	}
	if err != nil {
		return nil, err
	}
	go l.serve(listener)
	if holder, err = find(first, own, wait); holder != nil || err != nil {
		_ = listener.Close()
		return holder, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[network] = listener
	return nil, nil
}

// holds reports whether this process has the lock of a network.
func (l *Locks) holds(network string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[network] != nil
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

// describe returns the description of the holder of a lock.
func (l *Locks) describe(network string, holder net.Conn, wait time.Duration) string {
	description := ""
	if wait > 0 {
		description = query(holder, wait)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holders[network] = cmp.Or(description, l.holders[network])
	return cmp.Or(l.holders[network], "it has not identified itself yet")
}

// Holder returns the description of the daemon of root or our own user in this network namespace that
// holds the lock of a network on a node; empty if none does.
func Holder(node, network string) string {
	holder, err := find(socketName(node, network), "", QueryTimeout)
	switch {
	case err != nil:
		return "it cannot be queried: " + err.Error()
	case holder == nil:
		return ""
	}
	defer holder.Close()
	return query(holder, QueryTimeout)
}

// printableDir returns a state directory as a description has it.
func printableDir(dir string) string {
	dir = logging.Printable(dir)
	return strings.ToValidUTF8(dir[:min(len(dir), maxDir)], "")
}

// socketName returns the first name of a lock. It hashes node and network because an abstract name has
// at most 107 bytes.
func socketName(node, network string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d:%s%s", len(node), node, network)))
	return "@delegated-ipam/" + hex.EncodeToString(sum[:16])
}

// find connects to the daemon that holds a lock under another name than own; nil if none does. Any
// process can listen at such a name; a daemon is root or our own user. One that does not accept, while
// others fill its queue of connections, is tried until wait has elapsed.
func find(first, own string, wait time.Duration) (net.Conn, error) {
	names, err := listening(first)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(connectInterval) {
		var full []string
		for _, name := range names {
			if name == own {
				continue
			}
			conn, err := net.Dial("unix", name)
			switch {
			case errors.Is(err, syscall.EAGAIN):
				full = append(full, name)
				continue
			case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPROTOTYPE): // not, or no longer, a listener
				continue
			case err != nil:
				return nil, err
			}
			if peer, err := unixsock.PeerOf(conn); err == nil && peer.Privileged() {
				return conn, nil
			}
			_ = conn.Close()
		}
		switch names = full; {
		case len(names) == 0:
			return nil, nil
		case wait == 0:
			return nil, errors.New("a process that listens at its name does not accept connections; try again later")
		case time.Now().After(deadline):
			return nil, nil
		}
	}
}

// listening returns the first name of a lock, and the others at which a process listens now.
func listening(first string) ([]string, error) {
	table, err := os.Open("/proc/self/net/unix")
	if err != nil {
		return nil, err
	}
	defer table.Close()
	names, lines := []string{first}, bufio.NewScanner(table)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 8 && f[3] == listeningFlags && strings.HasPrefix(f[7], first+"/") {
			names = append(names, f[7])
		}
	}
	return names, lines.Err()
}

// query reads the description of the holder of a lock. The read is bounded.
func query(holder net.Conn, limit time.Duration) string {
	_ = holder.SetDeadline(time.Now().Add(limit))
	sent, _ := io.ReadAll(io.LimitReader(holder, maxLine)) // what precedes an error counts
	if line, _, ok := strings.Cut(string(sent), "\n"); ok {
		return logging.Printable(line)
	}
	if peer, err := unixsock.PeerOf(holder); err == nil {
		return fmt.Sprintf("PID %d of user %d; %s", peer.PID, peer.UID, unknown)
	}
	return unknown
}
