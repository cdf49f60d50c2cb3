package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// ledger is what a node's users believe: which pods run, and with which
// addresses. A pod runs from when cilium-cni has answered its ADD until its DEL
// begins. Whoever denies it an address in between has done wrong.
type ledger struct {
	mu         sync.Mutex
	pods       map[string]running
	violations []string
	// added and dropped count pods.
	added, dropped int
}

// running is a pod that runs. Its addresses do not change.
type running struct {
	name string
	ips  []netip.Addr
}

func newLedger() *ledger { return &ledger{pods: map[string]running{}} }

// began: cilium-cni has given the pod its addresses.
func (l *ledger) began(p *pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.pods {
		for _, ip := range p.ips {
			if slices.Contains(other.ips, ip) {
				l.violations = append(l.violations, fmt.Sprintf("%s was given to pod %s while pod %s has it", ip, p.name, other.name))
			}
		}
	}
	l.pods[p.name] = running{p.name, slices.Clone(p.ips)}
	l.added++
}

// ends: the pod is about to be taken down.
func (l *ledger) ends(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, name)
	l.dropped++
}

// violate writes down that a promise was broken.
func (l *ledger) violate(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violations = append(l.violations, fmt.Sprintf(format, args...))
}

// now are the pods that run at this moment.
func (l *ledger) now() []running {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.pods))
}

// still are those of some pods that have run ever since.
func (l *ledger) still(some []running) []running {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(some), func(r running) bool {
		_, runs := l.pods[r.name] // a name is used once
		return !runs
	})
}

// broken are the promises that were not kept.
func (l *ledger) broken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.violations)
}
