package benchbridge

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// The kubelet's delay after a failed start of a pod: backOffPeriod and workerBackOffPeriodJitterFactor
// of k8s.io/kubernetes/pkg/kubelet.
const (
	podBackoff       = 10 * time.Second
	podBackoffJitter = 0.5
)

// kubelet imitates the kubelets of all nodes: each pod that is bound to a node gets an ADD, which is
// repeated with the kubelet's delay until it succeeds, and then its podIP.
type kubelet struct {
	client kubernetes.Interface

	mu   sync.Mutex
	pods map[string]*pod
}

type pod struct {
	name  string
	agent *agent

	mu sync.Mutex
	// bound is when the kubelet saw it on its node.
	bound time.Time
	// ip is its address, empty before it has one, and started when it got it.
	ip      string
	started time.Time
	// failed are the times of its failed ADDs.
	failed []time.Time
	ended  bool
}

func newKubelet(t *testing.T, client kubernetes.Interface) *kubelet {
	k := &kubelet{client: client, pods: map[string]*pod{}}
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		if o, ok := object.(*corev1.Pod); ok {
			k.mu.Lock()
			p := k.pods[o.Name]
			k.mu.Unlock()
			if p != nil {
				go k.start(t.Context(), p)
			}
		}
	}})
	check.Must(t, err)
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return k
}

func (k *kubelet) create(t *testing.T, n *node, prefix string, count int) []*pod {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	var pods []*pod
	for i := range count {
		p := &pod{name: fmt.Sprintf("%s-%s-%d", n.name, prefix, i), agent: n.agent}
		pods = append(pods, p)
		k.mu.Lock()
		k.pods[p.name] = p
		k.mu.Unlock()
		group.Go(func() error {
			_, err := k.client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: p.name},
				Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
			}, metav1.CreateOptions{})
			return err
		})
	}
	check.Must(t, group.Wait())
	return pods
}

// start repeats the ADD of a pod until it succeeds, the pod ends or ctx ends.
func (k *kubelet) start(ctx context.Context, p *pod) {
	p.mu.Lock()
	p.bound = time.Now()
	p.mu.Unlock()
	for !p.add() {
		if cluster.Sleep(ctx, wait.Jitter(podBackoff, podBackoffJitter)) != nil {
			return
		}
	}
	p.mu.Lock()
	status := fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}]}}`, p.ip, p.ip)
	p.mu.Unlock()
	// Until the API server is available; a pod that has been deleted since needs none.
	for range 30 {
		if _, err := k.client.CoreV1().Pods("default").Patch(ctx, p.name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status"); err == nil {
			return
		}
		if cluster.Sleep(ctx, time.Second) != nil || p.hasEnded() {
			return
		}
	}
}

// add is one ADD, and reports whether it succeeded or is not needed any more.
func (p *pod) add() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return true
	}
	ip, err := p.agent.allocate("default/" + p.name)
	if err != nil {
		p.failed = append(p.failed, time.Now())
		return false
	}
	p.ip, p.started = ip, time.Now()
	return true
}

// remove ends a pod: DEL, then the object.
func (k *kubelet) remove(ctx context.Context, p *pod) error {
	p.mu.Lock()
	p.ended = true
	if p.ip != "" {
		p.agent.free(p.ip)
	}
	p.mu.Unlock()
	return k.client.CoreV1().Pods("default").Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

func (p *pod) hasEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// failures returns when the kubelet saw the pod on its node, zero if it has not, the number of failed ADDs, and
// how many of them were more than a second later.
func (p *pod) failures() (bound time.Time, all, late int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.failed {
		if at.Sub(p.bound) > time.Second {
			late++
		}
	}
	return p.bound, len(p.failed), late
}

func starts(pods []*pod) []time.Duration {
	var all []time.Duration
	for _, p := range pods {
		p.mu.Lock()
		if !p.started.IsZero() {
			all = append(all, p.started.Sub(p.bound))
		}
		p.mu.Unlock()
	}
	return all
}
