package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
)

const (
	// watchTimeout is the least time after which the API server ends a watch, maxSilence how long a
	// watch may have neither an event nor an end.
	watchTimeout = 75 * time.Second
	maxSilence   = 110 * time.Second
)

// watcher keeps a store up to date with a list and a watch, and records whether the watch works.
// Unlike client-go's informers, whose delays grow up to a minute, it retries as the controller does.
type watcher struct {
	metrics  *metrics
	resource string
	// after is a watcher whose watch or LIST must work first, nil for none: while the API server is
	// down, one of them retries. signal receives a value when the watch works again.
	after  *watcher
	signal chan struct{}
	up     atomic.Bool
	retry  kube.Retry
	// silence calls stop after maxSilence; nil before the first watch. stop ends the present list and
	// watch: the objects are listed again.
	silence *time.Timer
	stop    context.CancelFunc
	// silent reports whether silence has ended a watch, no later one has worked, and LIST works.
	silent atomic.Bool
}

const (
	resourceNodes = "ciliumnodes"
	resourcePods  = "pods"
)

func newWatcher(m *metrics, resource string) *watcher {
	return &watcher{metrics: m, resource: resource, signal: make(chan struct{}, 1)}
}

func (w *watcher) connected() bool { return w.up.Load() }

func (w *watcher) run(ctx context.Context, source *cache.ListWatch, expected any, store cache.ReflectorStore) {
	r := cache.NewReflectorWithOptions(observedSource{source, w}, expected, observedStore{store, w}, cache.ReflectorOptions{Name: fmt.Sprintf("%T", expected)})
	for ctx.Err() == nil {
		if w.after != nil && !w.after.connected() && !w.after.silent.Load() {
			sleep(ctx, resync, w.after.signal)
			continue
		}
		start := time.Now()
		working, stop := context.WithCancel(ctx)
		w.stop = stop
		err := r.ListAndWatchWithContext(working)
		stop()
		w.endWatch()
		w.setConnected(false)
		if time.Since(start) >= kube.MaxRetryDelay {
			w.retry.Reset()
		}
		if err != nil {
			w.metrics.apiErrors.WithLabelValues("watch").Inc()
			klog.FromContext(ctx).Info("Watch failed", "resource", w.resource, "err", err)
		}
		sleep(ctx, w.retry.Next(), nil)
	}
}

type observedSource struct {
	*cache.ListWatch
	*watcher
}

// IsWatchListSemanticsUnSupported makes the reflector use LIST: it repeats an expired stream of the
// initial state without delay.
func (observedSource) IsWatchListSemanticsUnSupported() bool { return true }

func (s observedSource) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.RequestLimit)
	defer cancel()
	list, err := s.ListWatch.ListWithContext(ctx, o)
	if err != nil {
		s.silent.Store(false)
	}
	return list, err
}

func (s observedSource) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.endWatch()
	stop := s.stop
	s.silence = time.AfterFunc(maxSilence, func() {
		s.silent.Store(true)
		s.setConnected(false)
		stop()
	})
	timeout := int64(jitter(watchTimeout, watchTimeout+20*time.Second).Seconds())
	o.TimeoutSeconds = &timeout
	stream, err := s.ListWatch.WatchWithContext(ctx, o)
	s.setConnected(err == nil && !s.silent.Load())
	return stream, withoutKind(err)
}

// endWatch ends the wait for silence of the last watch, if there was one.
func (w *watcher) endWatch() {
	if w.silence != nil && w.silence.Stop() {
		w.silent.Store(false) // it has ended before
	}
}

type observedStore struct {
	cache.ReflectorStore
	*watcher
}

func (s observedStore) UpdateResourceVersion(string) {
	if s.silence.Reset(maxSilence) && s.silent.Swap(false) {
		s.setConnected(true)
	}
}

func (w *watcher) setConnected(is bool) {
	w.up.Store(is)
	w.metrics.watches.WithLabelValues(w.resource).Set(map[bool]float64{true: 1}[is])
	if is {
		select {
		case w.signal <- struct{}{}:
		default: // the last one is still pending
		}
	}
}

// withoutKind hides the errors after which the reflector would retry with its own delays.
func withoutKind(err error) error {
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("watch: %v", err) //nolint:errorlint // hidden on purpose
	}
	return err
}

// nodePods are the pods of a node that have or need an address. All of them are counted, with and
// without an address, because the agent's list of used addresses is older.
type nodePods struct {
	// pending reports whether they will be listed.
	pending bool
	// count is their number, 0 if unknown; ips are their addresses.
	count int
	ips   map[netip.Addr]bool
}

// watchPods watches the pods of a node until ctx ends, while the watch of after works. wake is called
// after the first list, and after each change of the number of pods.
func watchPods(ctx context.Context, config *rest.Config, node string, m *metrics, after *watcher, wake func()) (get func() nodePods, err error) {
	client, err := typedcorev1.NewForConfig(kube.Protobuf(config))
	if err != nil {
		return nil, err
	}
	source := kube.ListWatch(client.Pods(metav1.NamespaceAll), fields.OneTermEqualSelector("spec.nodeName", node))
	store := newPodStore(wake)
	w := newWatcher(m, resourcePods)
	w.after = after
	go w.run(ctx, source, &corev1.Pod{}, store)
	return func() nodePods { return newNodePods(store.All()) }, nil
}

func newPodStore(wake func()) *kube.Store[[]corev1.PodIP] {
	return kube.NewStore(needsAddress, func(number bool) {
		if number {
			wake()
		}
	})
}

func newNodePods(all [][]corev1.PodIP, listed bool) nodePods {
	p := nodePods{pending: !listed, count: len(all), ips: map[netip.Addr]bool{}}
	for _, ips := range all {
		for _, ip := range ips {
			if ip, ok := ciliumnode.ParseAddress(ip.IP); ok {
				p.ips[ip] = true
			}
		}
	}
	return p
}

// needsAddress returns the addresses of a pod that has or needs one. A pod that is being deleted keeps it
// until its containers have ended.
func needsAddress(p *corev1.Pod) ([]corev1.PodIP, bool) {
	return p.Status.PodIPs, !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// sleep sleeps until a delay has passed or wake has a value.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-wake:
	case <-ctx.Done():
	case <-t.C:
	}
}
