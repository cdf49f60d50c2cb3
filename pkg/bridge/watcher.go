package bridge

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/pkg/kubeapi"
)

// waker receives a value when there is something to reconcile.
type waker chan struct{}

func newWaker() waker { return make(waker, 1) }

// wake makes the next receive succeed.
func (w waker) wake() {
	select {
	case w <- struct{}{}:
	default: // the last change is still pending
	}
}

// watcher keeps a store up to date with a list and a watch, and records whether the watch works.
// Unlike client-go's informers, whose delays grow up to a minute, it retries as the controller does.
type watcher struct {
	metrics  *metrics
	resource string
	// after is a watcher whose watch must work first, nil for none: while the API server is down, one
	// of them retries. signal receives a value when the watch works again.
	after  *watcher
	signal waker
	up     atomic.Bool
	retry  kubeapi.Retry
}

// Values of the label resource.
const (
	resourceNodes = "ciliumnodes"
	resourcePods  = "pods"
)

func newWatcher(m *metrics, resource string) *watcher {
	return &watcher{metrics: m, resource: resource, signal: newWaker()}
}

func (w *watcher) connected() bool { return w.up.Load() }

// run fills the store until ctx ends.
func (w *watcher) run(ctx context.Context, source *cache.ListWatch, expected any, store cache.ReflectorStore) {
	r := cache.NewReflectorWithOptions(w.observe(source), expected, store, cache.ReflectorOptions{Name: fmt.Sprintf("%T", expected)})
	for ctx.Err() == nil {
		if w.after != nil && !w.after.connected() {
			sleep(ctx, resync, w.after.signal)
			continue
		}
		err := r.ListAndWatchWithContext(ctx)
		w.setConnected(false)
		if err != nil {
			w.metrics.apiErrors.WithLabelValues("watch").Inc()
			klog.FromContext(ctx).Info("Watch failed", "resource", w.resource, "err", err)
		}
		sleep(ctx, w.retry.Next(), nil)
	}
}

// observe returns a source that records whether the watch works.
func (w *watcher) observe(source *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return source.ListWithContext(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			stream, err := source.WatchWithContext(ctx, o)
			w.setConnected(err == nil)
			return stream, withoutKind(err)
		},
	}
}

func (w *watcher) setConnected(is bool) {
	w.up.Store(is)
	w.metrics.watches.WithLabelValues(w.resource).Set(map[bool]float64{true: 1}[is])
	if is {
		w.retry.Reset()
		w.signal.wake()
	}
}

// withoutKind hides the errors after which the reflector would retry with its own delays.
func withoutKind(err error) error {
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("watch: %v", err) //nolint:errorlint // hidden on purpose
	}
	return err
}
