package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// podTracker tracks the running pods and their addresses, and collects violations. A pod runs from
// the success of its ADD until the start of its DEL, and must keep its addresses for that time.
type podTracker struct {
	mu         sync.Mutex
	pods       map[string]running
	violations []string
	// addedCount and removedCount count pods.
	addedCount, removedCount int
}

// running is a running pod. Its addresses do not change.
type running struct {
	name string
	ips  []netip.Addr
}

func newPodTracker() *podTracker { return &podTracker{pods: map[string]running{}} }

// added records that the ADD of a pod has succeeded.
func (t *podTracker) added(p *pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.pods {
		for _, ip := range p.ips {
			if slices.Contains(other.ips, ip) {
				t.violations = append(t.violations, fmt.Sprintf("%s was allocated to pod %s while pod %s has it", ip, p.name, other.name))
			}
		}
	}
	t.pods[p.name] = running{p.name, slices.Clone(p.ips)}
	t.addedCount++
}

// removed records that the DEL of a pod is about to start.
func (t *podTracker) removed(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, name)
	t.removedCount++
}

// addViolation records a violation.
func (t *podTracker) addViolation(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.violations = append(t.violations, fmt.Sprintf(format, args...))
}

// runningPods returns the running pods.
func (t *podTracker) runningPods() []running {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.pods))
}

// stillRunning returns the pods that have run since.
func (t *podTracker) stillRunning(some []running) []running {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(some), func(r running) bool {
		_, runs := t.pods[r.name] // names are not reused
		return !runs
	})
}

// violationList returns the violations.
func (t *podTracker) violationList() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.violations)
}
