package kube

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// TestMain removes client-go's global error handlers: one sleeps depending on the time of the last
// error, which is not simulated time.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// server is an API server with one pod. It implements Lister.
type server struct {
	mu sync.Mutex
	// err is the result of every request, refused that of a watch for all objects; with refusedEvent its
	// first event is an error.
	err, refused error
	refusedEvent bool
	// expired is a server that ends each watch with 410: when it opens, or with an event.
	expired, expiredEvent bool
	// silent is one whose watches have neither further events nor an end; hangs is one that does not
	// respond to a watch. Others end them at their time limit.
	silent, hangs bool
	// empty is one whose pod was deleted.
	empty    bool
	requests int
	stream   *watch.RaceFreeFakeWatcher
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// fail makes every request fail, and ends the watch.
func (s *server) fail(err error) {
	s.set(func() {
		s.err = err
		if s.stream != nil && err != nil {
			s.stream.Stop()
		}
	})
}

func (s *server) count() (n int) {
	s.set(func() { n = s.requests })
	return n
}

func (s *server) pods() []corev1.Pod {
	if s.empty {
		return nil
	}
	return []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}, Spec: corev1.PodSpec{NodeName: "worker"}}}
}

func (s *server) List(_ context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: s.pods()}, s.err
}

func (s *server) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	switch {
	case o.FieldSelector != "spec.nodeName=worker":
		return nil, errors.New("without the selector")
	case s.requests > 20_000:
		return nil, errors.New("too many requests") // a reflector that does not wait
	case s.err != nil:
		return nil, s.err
	case s.refused != nil && o.SendInitialEvents != nil:
		return nil, s.refused
	case s.expired:
		return nil, apierrors.NewResourceExpired("too old resource version")
	case s.hangs:
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return nil, ctx.Err()
	}
	stream := watch.NewRaceFreeFake()
	s.stream = stream
	switch {
	case s.refusedEvent && o.SendInitialEvents != nil:
		stream.Error(&metav1.Status{Status: metav1.StatusFailure, Message: "the required storage feature is disabled"})
	case s.expiredEvent:
		status := apierrors.NewResourceExpired("too old resource version").Status()
		stream.Error(&status)
	case o.SendInitialEvents != nil:
		for _, p := range s.pods() {
			stream.Add(&p)
		}
		stream.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
	}
	if s.silent {
		context.AfterFunc(ctx, stream.Stop)
	} else {
		time.AfterFunc(time.Duration(*o.TimeoutSeconds)*time.Second, stream.Stop)
	}
	return stream, nil
}

func newTestWatch(s *server) *Watch[*metav1.ObjectMeta] {
	return NewWatch(s, fields.OneTermEqualSelector("spec.nodeName", "worker"), func(p *corev1.Pod) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Name: p.Name}
	})
}

func simulate(t *testing.T, test func(t *testing.T), watches ...*Watch[*metav1.ObjectMeta]) {
	t.Helper()
	// Thousands of messages would hide the report of another test.
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	var work sync.WaitGroup
	for _, w := range watches {
		work.Go(func() { w.Run(ctx) })
	}
	defer work.Wait()
	defer cancel()
	synctest.Wait()
	test(t)
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantRequests(t *testing.T, s *server, since, least, most int) {
	t.Helper()
	if n := s.count() - since; n < least || n > most {
		t.Errorf("%d requests; want %d to %d", n, least, most)
	}
}

func wantPods(t *testing.T, w *Watch[*metav1.ObjectMeta], want int) {
	t.Helper()
	all, listed := w.List()
	if len(all) != want || !listed || !w.Connected() {
		t.Errorf("%d pods, listed %v, connected %v; want %d pods", len(all), listed, w.Connected(), want)
	}
}

// A watch is one request. If the API server cannot send all objects in a watch it is three, and two after
// that was noticed.
func TestWatch(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	for name, tt := range map[string]struct {
		server       *server
		first, later int
	}{
		"supported": {&server{}, 1, 1}, "old API server": {&server{refused: invalid}, 3, 2}, "old etcd": {&server{refusedEvent: true}, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tt.server
				w := newTestWatch(s)
				changes, full := 0, 0
				w.Changed = func(all bool) {
					changes++
					if all {
						full++
					}
				}
				simulate(t, func(t *testing.T) {
					wantPods(t, w, 1)
					wantRequests(t, s, 0, tt.first, tt.first)
					more := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", ResourceVersion: "2"}}
					s.stream.Add(more)
					s.stream.Modify(more)
					advance(time.Second)
					wantPods(t, w, 2)
					s.stream.Delete(more)
					advance(time.Second)
					wantPods(t, w, 1)
					if changes != 4 || full != 1 {
						t.Errorf("%d changes, %d with all objects; want 4 and 1", changes, full)
					}
					before := s.count()
					advance(time.Hour)
					wantRequests(t, s, before, 1, 50) // 3600 s / 85 s
					if full != 1 {
						t.Errorf("all objects were received %d times", full)
					}
					s.fail(apierrors.NewServiceUnavailable("down"))
					advance(time.Minute)
					s.fail(nil)
					before = s.count()
					advance(RetryInterval)
					wantPods(t, w, 1)
					wantRequests(t, s, before, tt.later, tt.later)
				}, w)
			})
		})
	}
}

// During an outage one watch retries, and each sends one request at its end.
func TestOutage(t *testing.T) {
	for name, err := range map[string]error{
		"refused": syscall.ECONNREFUSED, "busy": apierrors.NewTooManyRequests("busy", 0), "unavailable": apierrors.NewServiceUnavailable("down"),
		"not permitted": apierrors.NewForbidden(schema.GroupResource{}, "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second := &server{}, &server{}
				one, two := newTestWatch(first), newTestWatch(second)
				two.After = one.Connected
				simulate(t, func(t *testing.T) {
					advance(time.Minute)
					wantPods(t, one, 1)
					wantPods(t, two, 1)
					first.fail(err)
					second.fail(err)
					advance(time.Minute)
					before, beforeSecond := first.count(), second.count()
					advance(time.Hour)
					if one.Connected() || two.Connected() || one.Err() == nil {
						t.Error("connected during the outage")
					}
					wantRequests(t, first, before, int(time.Hour/RetryInterval), int(time.Hour/RetryInterval)+1)
					wantRequests(t, second, beforeSecond, 0, 0)
					before, beforeSecond = first.count(), second.count()
					first.fail(nil)
					second.fail(nil)
					advance(RetryInterval)
					wantPods(t, one, 1)
					advance(RetryInterval)
					wantPods(t, two, 1)
					wantRequests(t, first, before, 1, 1)
					wantRequests(t, second, beforeSecond, 1, 1)
				}, one, two)
			})
		})
	}
}

// An API server that has just started refuses what it permits later.
func TestRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		w := newTestWatch(s)
		simulate(t, func(t *testing.T) {
			s.fail(syscall.ECONNREFUSED)
			advance(time.Minute)
			s.fail(apierrors.NewForbidden(schema.GroupResource{}, "", nil))
			for repeated := range 3 {
				for before := s.count(); s.count() == before; {
					advance(time.Second)
				}
				if err := w.Err(); err == nil || apierrors.IsForbidden(err) != (repeated > 0) {
					t.Errorf("request %d: error %v, forbidden %v", repeated, err, apierrors.IsForbidden(err))
				}
			}
		}, w)
	})
}

// A watch that always expires is repeated with delays.
func TestExpired(t *testing.T) {
	for name, s := range map[string]*server{"refused": {expired: true}, "event": {expiredEvent: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				simulate(t, func(t *testing.T) {
					advance(time.Hour)
					wantRequests(t, s, 0, 1, 800) // at most one in 5 s
				}, newTestWatch(s))
			})
		})
	}
}

// A watch without events and without an end is noticed, and all objects are received again.
func TestSilent(t *testing.T) {
	for name, set := range map[string]func(s *server){
		"no events": func(s *server) { s.silent = true }, "no response": func(s *server) { s.hangs = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				w := newTestWatch(s)
				simulate(t, func(t *testing.T) {
					wantPods(t, w, 1)
					s.set(func() {
						set(s)
						s.empty = true
						s.stream.Stop()
					})
					advance(3 * time.Minute)
					if s.hangs && w.Connected() {
						t.Error("connected to an API server that does not respond")
					}
					before := s.count()
					advance(time.Hour)
					wantRequests(t, s, before, 1, 60)
					s.set(func() { s.silent, s.hangs = false, false })
					advance(3 * time.Minute)
					wantPods(t, w, 0)
				}, w)
			})
		})
	}
}
