package agent

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// The kubelet's delay after a failed start of a pod: backOffPeriod and workerBackOffPeriodJitterFactor
// of k8s.io/kubernetes/pkg/kubelet.
const (
	podBackoff       = 10 * time.Second
	podBackoffJitter = 0.5
)

// kubelet imitates the kubelet for pods that are bound together. As there, each pod has a worker, so
// the ADDs of all pods run concurrently, and a failed one is repeated in a new sandbox after a delay.
type kubelet struct {
	testbed *testbed
	tracker *podTracker
}

// burstPod is a pod and what its start took.
type burstPod struct {
	*pod
	// bound is when its object with spec.nodeName existed, and running when its ADD had succeeded.
	bound, running time.Time
	// failed are the ends of its failed ADDs.
	failed []time.Time
}

// start binds pods to the node together, and returns when all run or ctx ends. The sandboxes of the
// first attempts exist before. It returns the time at which it created the first pod.
func (k *kubelet) start(ctx context.Context, t *testing.T, count int) (time.Time, []*burstPod) {
	t.Helper()
	var pods []*burstPod
	for n := range count {
		p := &burstPod{pod: &pod{name: fmt.Sprintf("b%d", n)}}
		must(t, p.newSandbox())
		pods = append(pods, p)
	}
	begin := time.Now()
	var all sync.WaitGroup
	for _, p := range pods {
		all.Go(func() {
			if err := k.run(ctx, p); err != nil {
				t.Errorf("pod %s: %v", p.name, err)
			}
		})
	}
	all.Wait()
	return begin, pods
}

// run binds a pod and repeats its ADD until it succeeds. An attempt is not cancelled.
func (k *kubelet) run(ctx context.Context, p *burstPod) error {
	uid, err := k.testbed.kube.createPod(ctx, p.name)
	if err != nil {
		return err
	}
	p.bound = time.Now()
	for {
		err := k.testbed.attachPod(context.WithoutCancel(ctx), p.pod, uid)
		if err == nil {
			p.running = time.Now()
			k.tracker.added(p.pod)
			return nil
		}
		p.failed = append(p.failed, time.Now())
		k.testbed.agent.Note(fmt.Sprintf("attempt failed: %v", err))
		if err := k.testbed.dropPod(context.WithoutCancel(ctx), p.pod); err != nil {
			return err
		}
		sleep(ctx, wait.Jitter(podBackoff, podBackoffJitter))
		if ctx.Err() != nil {
			return fmt.Errorf("does not run after %d attempts: %w", p.attempts, err)
		}
		if err := p.newSandbox(); err != nil {
			return err
		}
	}
}
