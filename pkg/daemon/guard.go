package daemon

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// guards keep a second sidecar of the same node and network away: two state
// folders would make two owners of one container ID (docs/how-it-works.md, A second sidecar).
// A guard is a listening unix socket in the abstract namespace: everybody on the
// node's network namespace sees it, and the kernel removes it with the process.
// Whoever connects is told who holds it.
type guards struct {
	node string
	says string

	mu   sync.Mutex
	held map[string]net.Listener
}

// ofState stands between the PID and the state folder of who holds a guard.
const ofState = ", state folder "

// HolderHas tells whether who holds a guard (Examined.Guard) has a state folder.
func HolderHas(guard, stateDir string) bool { return strings.HasSuffix(guard, ofState+stateDir) }

// askTime bounds the question who holds a guard; the answer is only for the text.
const askTime = time.Second

func newGuards(node, stateDir string) *guards {
	return &guards{
		node: node, held: map[string]net.Listener{},
		says: fmt.Sprintf("PID %d%s%s", os.Getpid(), ofState, stateDir),
	}
}

// take guards a network for this process, once. The error names who has it.
func (g *guards) take(network string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[network] != nil {
		return nil
	}
	name := guardName(g.node, network)
	l, err := net.Listen("unix", name)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another sidecar serves network %q on node %q already (%s); stop it, or give this one a --node-name or a network of its own",
			network, g.node, askHolder(name))
	}
	if err != nil {
		return fmt.Errorf("guard of network %q on node %q: %w", network, g.node, err)
	}
	g.held[network] = l
	go g.answer(l)
	return nil
}

// answer tells everybody who connects who holds the guard, until it is closed.
func (g *guards) answer(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		// Whoever asks only wants to say it to a person; a lost answer loses nothing.
		_ = conn.SetDeadline(time.Now().Add(askTime))
		_, _ = fmt.Fprintln(conn, g.says)
		_ = conn.Close()
	}
}

// release gives every guard up.
func (g *guards) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for network, l := range g.held {
		_ = l.Close()
		delete(g.held, network)
	}
}

// guardName is hashed because an abstract name has at most 107 bytes.
func guardName(node, network string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d:%s%s", len(node), node, network)))
	return "@delegated-ipam/" + hex.EncodeToString(sum[:16])
}

// holderOf says who holds a guard; empty for nobody.
func holderOf(name string) string {
	conn, err := net.DialTimeout("unix", name, askTime)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return ""
	}
	if err == nil {
		_ = conn.Close()
	}
	return askHolder(name)
}

func askHolder(name string) string {
	conn, err := net.DialTimeout("unix", name, askTime)
	if err != nil {
		return "it does not say who it is"
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(askTime))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "it does not say who it is"
	}
	return strings.TrimSpace(line)
}
