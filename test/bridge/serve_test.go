package bridge

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

// The bridge is killed at random moments: no address is lost and none leaks.
//
//evidence:design/reliability the bridge is killed at any moment
func TestKill(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, f *fixture) {
		flags := []string{"--pre-allocate=2", "--min-allocate=3"}
		bridge := f.serve(t, 5, flags...)
		random := rand.New(rand.NewPCG(1, 2))
		for range 25 {
			_, before := f.server.Counts()
			after := before + random.IntN(4)
			f.eventually(t, "writes of the bridge, or none for a while", func() error {
				if random.IntN(3) == 0 {
					f.agent.Allocate(f.dual)
				} else if uses := f.agent.Uses(); random.IntN(3) == 0 && len(uses) > 0 {
					f.agent.Free(uses[random.IntN(len(uses))])
				}
				if _, now := f.server.Counts(); now < after && random.IntN(40) != 0 {
					return fmt.Errorf("%d writes, want %d", now, after)
				}
				return nil
			})
			bridge.end(t, syscall.SIGKILL)
			if random.IntN(3) == 0 {
				f.agent.Kill()
				f.agent.Start(t)
			}
			bridge = startBridge(t, f.server, f.node, flags...)
		}
		f.agent.Free(f.agent.Uses()...)
		f.converge(t, 5)
	})
}

func TestHangup(t *testing.T) {
	t.Parallel()
	f := newFixture(t, false)
	p := f.serve(t, 4, smallFlags()...)
	p.signal(t, syscall.SIGHUP)
	p.signal(t, syscall.SIGUSR1)
	f.eventually(t, "the log of both signals", func() error {
		for _, text := range []string{"SIGHUP", "goroutine 1 ["} {
			if !strings.Contains(p.out.String(), text) {
				return fmt.Errorf("the output lacks %q", text)
			}
		}
		return nil
	})
	f.addPods(t, 3)
	f.eventually(t, "a free slot more", func() error { return f.atRest(t, f.slots(t)+1) })
}

// A daemon that serves IPv6 only since a restart has the IPv6 addresses of the slots already.
func TestIPv6Enabled(t *testing.T) {
	t.Parallel()
	f := newFixture(t, true)
	f.daemon.Stop(t)
	f.daemon, f.dual = f.node.Start(t, "--enable-ipv6=false"), false
	bridge := startBridge(t, f.server, f.node, smallFlags()...)
	f.agent.Start(t)
	f.eventually(t, "the first publication", func() error {
		if n, _ := f.server.Node(t, f.node.Name); len(n.Pool) != 4 { // the plugin has 8 addresses
			return fmt.Errorf("the pool has %v", n.Pool)
		}
		return nil
	})
	f.addPods(t, 1)
	f.daemon.Stop(t)
	f.waitForCondition(t, bridge, "DaemonUnavailable")
	f.daemon, f.dual = f.node.Start(t), true
	f.eventually(t, "the IPv6 addresses", func() error { return f.atRest(t, 4) })
}
