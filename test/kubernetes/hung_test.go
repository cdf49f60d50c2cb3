package kubernetes

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

const (
	// hungLimit is the required limit; a slow machine may miss it.
	hungLimit = 100 * time.Second
	// hungTimeout is when the case fails.
	hungTimeout = 150 * time.Second
)

// testHung stops a process of each program, on different nodes where two would need each other. The
// liveness probes must replace them.
func (tb *testbed) testHung(t *testing.T) {
	tb.ensurePods(t)
	m := tb.startMonitor(t)
	type hung struct {
		n   *node
		p   target
		pid int
	}
	var all []hung
	begin := time.Now()
	for _, h := range []hung{{n: tb.nodes[0], p: sidecarProgram()}, {n: tb.nodes[1], p: bridgeProgram()}, {n: tb.nodes[1], p: networkProgram()}} {
		h.pid = h.n.signal(t, h.p, syscall.SIGSTOP)
		all = append(all, h)
	}
	for len(all) > 0 {
		var left []hung
		for _, h := range all {
			if pid, err := h.n.find(h.p); err != nil || pid == h.pid {
				left = append(left, h)
				continue
			}
			tb.record(t, fmt.Sprintf("from SIGSTOP of %s until the kubelet has replaced it (limit %s)", h.p.name, hungLimit), time.Since(begin))
		}
		if all = left; len(all) > 0 && time.Since(begin) > hungTimeout {
			for _, h := range all {
				t.Errorf("%s on %s still hangs after %s; the limit is %s", h.p.name, h.n.name, hungTimeout, hungLimit)
				_ = syscall.Kill(h.pid, syscall.SIGCONT)
			}
			break
		}
		sleep(t.Context(), 200*time.Millisecond)
	}
	tb.waitHealthy(t, "the cluster to be healthy")
	tb.waitRecords(t, "after the replacement")
	m.stop(t)
}
