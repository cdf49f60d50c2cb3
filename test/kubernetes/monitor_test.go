package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// monitor checks during a case that no address has two owners, and that the stable pods keep theirs.
type monitor struct {
	tb     *testbed
	stable map[string]string
	began  time.Time
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu         sync.Mutex
	violations map[string]bool
	// comparisons counts the lists of pods that were compared.
	comparisons int
}

// startMonitor starts a monitor. Its stop must be called.
func (tb *testbed) startMonitor(t *testing.T) *monitor {
	t.Helper()
	m := &monitor{tb: tb, stable: map[string]string{}, began: time.Now(), violations: map[string]bool{}}
	pods, err := tb.running(t.Context())
	harness.Must(t, err)
	for _, p := range pods {
		if isStable(p) {
			m.stable[p.Name] = fmt.Sprint(p.Status.PodIPs)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.cancel = cancel
	m.ended.Go(func() {
		for ; ctx.Err() == nil; sleep(ctx, time.Second) {
			m.compare(ctx)
		}
	})
	return m
}

// stop ends the monitor, fails the test if there was a violation, and returns the number of comparisons.
func (m *monitor) stop(t *testing.T) int {
	t.Helper()
	m.cancel()
	m.ended.Wait()
	for v := range m.violations {
		t.Error(v)
	}
	if m.comparisons == 0 {
		t.Error("the monitor compared nothing")
	}
	return m.comparisons
}

// compare compares what can be read now.
func (m *monitor) compare(ctx context.Context) {
	pods, err := m.tb.running(ctx)
	if err != nil {
		return // the test ends
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.comparisons++
	m.check(sharedAddresses(pods))
	for _, p := range pods {
		if before, ok := m.stable[p.Name]; ok && fmt.Sprint(p.Status.PodIPs) != before {
			// A killed containerd may lose a sandbox; the next one gets an address like a new pod.
			err := m.tb.sandboxChanged(ctx, p.Name, m.began)
			if err != nil {
				m.check(fmt.Errorf("pod %s had %s and has %s: %w", p.Name, before, p.Status.PodIPs, err))
			}
			m.stable[p.Name] = fmt.Sprint(p.Status.PodIPs)
		}
	}
	m.check(m.lost(pods))
	var all []ciliumagent.Endpoint
	for _, n := range m.tb.nodes {
		list, err := n.agent().Endpoints(ctx)
		if err == nil { // otherwise the agent is down
			all = append(all, list...)
		}
	}
	m.check(ciliumagent.SharedAddresses(all))
}

// sandboxChanged returns nil if the kubelet has created another sandbox for a pod since a time.
func (tb *testbed) sandboxChanged(ctx context.Context, pod string, since time.Time) error {
	events, err := listOf[corev1.Event](ctx, tb.Resource("", "v1", "events").Namespace(podNamespace),
		metav1.ListOptions{FieldSelector: "reason=SandboxChanged,involvedObject.name=" + pod})
	late := func(e corev1.Event) bool { return !e.LastTimestamp.Time.Before(since.Truncate(time.Second)) }
	if err == nil && !slices.ContainsFunc(events, late) {
		err = errors.New("in the same sandbox")
	}
	return err
}

// lost returns an error if a stable pod is missing.
func (m *monitor) lost(pods []corev1.Pod) error {
	has := map[string]bool{}
	for _, p := range pods {
		has[p.Name] = true
	}
	for name := range m.stable {
		if !has[name] {
			return fmt.Errorf("pod %s does not exist any more", name)
		}
	}
	return nil
}

func (m *monitor) check(err error) {
	if err != nil {
		m.violations[err.Error()] = true
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
