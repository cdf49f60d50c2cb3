package bridge

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/internal/kube"
)

// fakeSource is an API server with one pod.
type fakeSource struct {
	mu  sync.Mutex
	err error
	// expired is an API server that ends each watch with 410: when it opens, or with an event.
	expired, expiredEvent bool
	// silent is one whose watches have neither events nor an end; hangs is one that does not respond to
	// a watch. Others end them at their time limit.
	silent, hangs bool
	// empty is an API server whose pod was deleted.
	empty    bool
	requests int
	watch    *watch.FakeWatcher
}

func (s *fakeSource) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if err != nil && s.watch != nil {
		s.watch.Stop()
	}
}

func (s *fakeSource) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *fakeSource) request() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	return s.err
}

func (s *fakeSource) source() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.PodList{Items: []corev1.Pod{*pod("1", nil)}}
			list.ResourceVersion = "1"
			err := s.request()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.empty {
				list.Items = nil
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			err := s.request()
			s.mu.Lock()
			defer s.mu.Unlock()
			switch {
			case s.requests > 20_000:
				return nil, errors.New("too many requests") // a reflector that does not wait
			case s.expired:
				return nil, apierrors.NewResourceExpired("too old resource version")
			case o.SendInitialEvents != nil:
				return nil, errors.New("not supported")
			case err != nil:
				return nil, err
			case s.hangs:
				s.mu.Unlock()
				<-ctx.Done()
				s.mu.Lock()
				return nil, ctx.Err()
			}
			stream := watch.NewFakeWithChanSize(1, false)
			s.watch = stream
			if s.expiredEvent {
				status := apierrors.NewResourceExpired("too old resource version").Status()
				stream.Error(&status)
			}
			if !s.silent {
				time.AfterFunc(time.Duration(*o.TimeoutSeconds)*time.Second, stream.Stop)
			}
			return stream, nil
		},
	}
}

// Retries of the watches are spread, of one watch only, and end within 10 s.
func TestWatchRetries(t *testing.T) {
	for name, err := range map[string]error{
		"refused": errors.New("connection refused"), "busy": apierrors.NewTooManyRequests("busy", 0), "unavailable": apierrors.NewServiceUnavailable("down"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, nodes, pods := newMetrics(), &fakeSource{}, &fakeSource{}
				first, second := newWatcher(m, resourceNodes), newWatcher(m, resourcePods)
				second.after = first
				store := newPodStore(func() {})
				// Thousands of messages would hide the report of another test.
				ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
				var work sync.WaitGroup
				work.Go(func() { first.run(ctx, nodes.source(), &corev1.Pod{}, newPodStore(func() {})) })
				work.Go(func() { second.run(ctx, pods.source(), &corev1.Pod{}, store) })
				advance(time.Minute)
				if !first.connected() || !second.connected() || newNodePods(store.All()).count != 1 {
					t.Fatalf("connected %v, %v, %d pods", first.connected(), second.connected(), newNodePods(store.All()).count)
				}
				nodes.set(err)
				pods.set(err)
				advance(time.Minute)
				before, beforePods := nodes.count(), pods.count()
				advance(time.Hour)
				if first.connected() || second.connected() {
					t.Error("connected during the outage")
				}
				// 3600 s / 5 s.
				if n, p := nodes.count()-before, pods.count()-beforePods; n < 600 || n > 900 || p > 0 {
					t.Errorf("%d and %d requests in an hour; want about 720 and none", n, p)
				}
				nodes.set(nil)
				pods.set(nil)
				advance(kube.MaxRetryDelay)
				if !first.connected() || !second.connected() {
					t.Errorf("after %s connected %v, %v", kube.MaxRetryDelay, first.connected(), second.connected())
				}
				cancel()
				work.Wait()
			})
		})
	}
}

// A watch that fails after each list is repeated with growing delays.
func TestExpiredWatch(t *testing.T) {
	for name, source := range map[string]*fakeSource{"refused": {expired: true}, "event": {expiredEvent: true}} {
		t.Run(name, func(t *testing.T) {
			runWatcher(t, source, func(*watcher) {
				advance(time.Minute)
				before := source.count()
				advance(time.Hour)
				// List and watch, 3600 s / 5 s.
				if n := source.count() - before; n < 1200 || n > 1800 {
					t.Errorf("%d requests in an hour; want about 1440", n)
				}
			})
		})
	}
}

// A watch without events and without an end is noticed within two minutes, and does not count as
// connected until it works again.
func TestSilentWatch(t *testing.T) {
	for name, fail := range map[string]func(s *fakeSource){
		"no events": func(s *fakeSource) { s.silent = true }, "no response": func(s *fakeSource) { s.hangs = true },
	} {
		t.Run(name, func(t *testing.T) {
			source := &fakeSource{}
			runWatcher(t, source, func(w *watcher) {
				for range 360 {
					advance(10 * time.Second)
					if !w.connected() {
						t.Fatal("not connected, although the API server ends its watches")
					}
				}
				// 3600 s / 85 s.
				if n := source.count(); n > 60 {
					t.Errorf("%d requests in an hour; want about 43", n)
				}
				source.mu.Lock()
				fail(source)
				source.watch.Stop()
				source.mu.Unlock()
				advance(2 * time.Minute)
				before := source.count()
				for range 360 {
					if w.connected() {
						t.Fatal("connected to a silent API server")
					}
					advance(10 * time.Second)
				}
				if n := source.count() - before; n > 80 {
					t.Errorf("%d requests in an hour; want about 65", n)
				}
				source.mu.Lock()
				source.silent, source.hangs = false, false
				source.mu.Unlock()
				advance(4 * time.Minute)
				if !w.connected() {
					t.Error("not connected after the end of the silence")
				}
				source.mu.Lock()
				source.silent = true
				source.watch.Stop()
				source.mu.Unlock()
				advance(4 * time.Minute)
				source.mu.Lock()
				source.watch.Modify(pod("1", nil))
				source.mu.Unlock()
				if advance(time.Second); !w.connected() {
					t.Error("not connected after an event")
				}
			})
		})
	}
}

// The pods of a silent watch are listed again, also if the watch of the CiliumNode is silent.
func TestSilentPods(t *testing.T) {
	for name, nodes := range map[string]*fakeSource{"pods": {}, "all": {silent: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, pods := newMetrics(), &fakeSource{silent: true}
				first, second := newWatcher(m, resourceNodes), newWatcher(m, resourcePods)
				second.after = first
				store := newPodStore(func() {})
				ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
				var work sync.WaitGroup
				work.Go(func() { first.run(ctx, nodes.source(), &corev1.Pod{}, newPodStore(func() {})) })
				work.Go(func() { second.run(ctx, pods.source(), &corev1.Pod{}, store) })
				advance(time.Minute)
				if n := newNodePods(store.All()).count; n != 1 {
					t.Errorf("%d pods", n)
				}
				for _, want := range []int{0, 1, 0} {
					pods.mu.Lock()
					pods.empty = want == 0
					pods.mu.Unlock()
					advance(2*maxSilence + resync)
					if n := newNodePods(store.All()).count; n != want {
						t.Errorf("%d pods; want %d", n, want)
					}
					if second.connected() {
						t.Error("connected to a silent API server")
					}
				}
				cancel()
				work.Wait()
			})
		})
	}
}

// runWatcher runs a watcher of a source in simulated time, while test runs.
func runWatcher(t *testing.T, source *fakeSource, test func(w *watcher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(newMetrics(), resourcePods)
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		var work sync.WaitGroup
		work.Go(func() { w.run(ctx, source.source(), &corev1.Pod{}, newPodStore(func() {})) })
		defer work.Wait()
		defer cancel()
		synctest.Wait()
		test(w)
	})
}

// pod returns a pod with a UID.
func pod(uid string, set func(p *corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}}
	if set != nil {
		set(p)
	}
	return p
}

func TestPodStore(t *testing.T) {
	wakes := 0
	s := newPodStore(func() { wakes++ })
	for i, step := range []struct {
		do    func() error
		count int
		wakes int
	}{
		{func() error { return s.Replace([]any{pod("1", nil), pod("2", nil)}, "1") }, 2, 1},
		{func() error { return s.Add(pod("3", nil)) }, 3, 2},
		{func() error { return s.Update(pod("3", func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" })) }, 3, 2},
		{func() error { return s.Update(pod("3", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })) }, 3, 2},
		{func() error { return s.Add(pod("4", func(p *corev1.Pod) { p.Spec.HostNetwork = true })) }, 3, 2},
		{func() error { return s.Update(pod("1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })) }, 2, 3},
		{func() error { return s.Update(pod("2", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })) }, 1, 4},
		{func() error { return s.Delete(pod("3", nil)) }, 0, 5},
		{func() error { return s.Delete(pod("3", nil)) }, 0, 5},
	} {
		if err := step.do(); err != nil || newNodePods(s.All()).count != step.count || wakes != step.wakes {
			t.Errorf("step %d: %d pods, %d wakes, %v; want %d and %d", i, newNodePods(s.All()).count, wakes, err, step.count, step.wakes)
		}
	}
}

func TestExhaustionText(t *testing.T) {
	for text, want := range map[string]bool{
		"no IP addresses available in range set: 10.0.0.2-10.0.0.6":                      true,
		"Could not allocate IP in range: ip: 10.0.0.1 / - 10.0.0.6 / range: 10.0.0.0/29": true,
		"failed to request IPv4 addresses. IPAM allocated only 0":                        true,
		"range is exhausted":                                          true,
		"no available addresses":                                      true,
		"dial tcp 10.0.0.1:2379: connect: connection refused":         false,
		"failed to find plugin \"host-local\" in path [/opt/cni/bin]": false,
	} {
		t.Run(text, func(t *testing.T) {
			if got := exhaustedText.MatchString(text); got != want {
				t.Errorf("is %v, want %v", got, want)
			}
		})
	}
}
