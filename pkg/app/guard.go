package app

import (
	"cmp"
	"context"
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

	"github.com/delegated-ipam/delegated-ipam/pkg/logging"
	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// guards keep a second sidecar of the same node and network away: two state
// folders would make two owners of one container ID (docs/how-it-works.md, A second sidecar).
// A guard is a listening unix socket in the abstract namespace: each process in the
// node's network namespace sees it, and the kernel removes it with the process.
// A process that connects reads the PID and state folder of its holder.
type guards struct {
	node string
	line string

	mu      sync.Mutex
	held    map[string]net.Listener
	holders map[string]*question[string]
	asking  sync.WaitGroup
}

const (
	// askTime bounds the question to the holder of a guard; its answer is only for the text.
	askTime = time.Second
	// maxLine and maxFolder are how many bytes of the answer are read, and how many of
	// them a state folder may take.
	maxLine   = 512
	maxFolder = 400

	// ofState stands between the PID and the state folder of the holder of a guard.
	ofState = ", state folder "
	unknown = "it does not say who it is"
)

// HolderHas reports whether the holder of a guard (Examined.Guard) has a state folder.
func HolderHas(guard, stateDir string) bool {
	_, folder, ok := strings.Cut(guard, ofState)
	return ok && folder == shownFolder(stateDir)
}

// shownFolder is a state folder as it stands in the line of a guard.
func shownFolder(dir string) string {
	dir = logging.Printable(dir)
	return strings.ToValidUTF8(dir[:min(len(dir), maxFolder)], "")
}

func newGuards(node, stateDir string) *guards {
	return &guards{
		node: node, held: map[string]net.Listener{}, holders: map[string]*question[string]{},
		line: fmt.Sprintf("PID %d%s%s", os.Getpid(), ofState, shownFolder(stateDir)),
	}
}

// take guards a network for this process, once. The error names the process that has
// it, as far as that answers within wait. A request does not wait.
func (g *guards) take(network string, wait time.Duration) error {
	name := guardName(g.node, network)
	switch err := g.bind(network, name); {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another sidecar serves network %q on node %q already (%s); stop it, or give this one a --node-name or a network of its own",
			network, g.node, g.holder(name, wait))
	case err != nil:
		return fmt.Errorf("guard of network %q on node %q: %w", network, g.node, err)
	}
	return nil
}

// bind makes the guard of a network, unless there is one.
func (g *guards) bind(network, name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[network] != nil {
		return nil
	}
	l, err := net.Listen("unix", name)
	if err != nil {
		return err
	}
	g.held[network] = l
	go g.answer(l)
	return nil
}

// answer sends the line to each process that connects, until the guard is closed.
func (g *guards) answer(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		// The line is only for a text; a lost one loses nothing.
		_ = conn.SetDeadline(time.Now().Add(askTime))
		_, _ = fmt.Fprintln(conn, g.line)
		_ = conn.Close()
	}
}

// holder returns the holder of a guard, as it last answered. It is asked in the
// background, one question at a time.
func (g *guards) holder(name string, wait time.Duration) string {
	g.mu.Lock()
	q, ok := g.holders[name]
	if !ok {
		q = &question[string]{
			ask:      func() string { return cmp.Or(holderOf(name), "it has ended since") },
			fresh:    func(string) time.Duration { return goodFor },
			patience: askTime, running: &g.asking,
		}
		g.holders[name] = q
	}
	g.mu.Unlock()
	q.refresh()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	who, is := q.answer(ctx)
	if is != answered {
		return "it has not said yet who it is"
	}
	return who
}

// release gives every guard up.
func (g *guards) release() {
	g.mu.Lock()
	for network, l := range g.held {
		_ = l.Close()
		delete(g.held, network)
	}
	g.mu.Unlock()
	g.asking.Wait()
}

// guardName is hashed because an abstract name has at most 107 bytes.
func guardName(node, network string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d:%s%s", len(node), node, network)))
	return "@delegated-ipam/" + hex.EncodeToString(sum[:16])
}

// holderOf asks the holder of a guard for its name; empty if there is no such guard. Any
// process of the network namespace can be the holder, so the read is bounded.
func holderOf(name string) string {
	conn, err := net.DialTimeout("unix", name, askTime)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return ""
	}
	if err != nil {
		return unknown
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(askTime))
	sent, _ := io.ReadAll(io.LimitReader(conn, maxLine)) // what came before an error counts
	if line, _, ok := strings.Cut(string(sent), "\n"); ok {
		return logging.Printable(line)
	}
	if peer, err := unixsock.PeerOf(conn); err == nil {
		return fmt.Sprintf("PID %d of user %d; %s", peer.PID, peer.UID, unknown)
	}
	return unknown
}
