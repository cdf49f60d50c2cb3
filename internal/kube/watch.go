package kube

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// watchTimeout is the least time after which the API server ends a watch. One that it does not end
	// is silent, and ends RequestLimit later.
	watchTimeout = 75 * time.Second
	// Requests of one watch per second, and in a burst: the reflector repeats some without delay.
	watchRate, watchBurst = 0.2, 5
)

// Lister lists and watches the objects of one resource, as a typed client (L is its list) or a dynamic
// one does.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Watch keeps a part T of each object of one resource that a selector selects. client-go's reflector
// streams their initial state and the changes, and continues a watch that has ended.
type Watch[T any] struct {
	// Changed is called after each change. all reports whether the API server has sent all objects.
	Changed func(all bool)
	// Requested is called after each request (list or watch).
	Requested func(verb string, err error)
	// After reports whether another watch works, nil for none. After a failed request this one waits for
	// it: while the API server is down, one of them retries.
	After func() bool
	// Offset is of the moments, one in each RetryInterval, at which requests are sent after two that have
	// failed: when the API server is available again, each node sends its own at another time.
	Offset time.Duration

	transform cache.TransformFunc
	reflector *cache.Reflector
	objects   cache.Store
	limiter   flowcontrol.RateLimiter

	// initial reports whether the last watch has requested all objects, unsupported whether the API server
	// or its etcd cannot send them in a watch.
	initial, unsupported bool

	mu sync.Mutex
	// err is the error of the last request, failures how many have failed since one has not, and refused
	// whether the last one was forbidden.
	err      error
	failures int
	refused  bool
	// listed reports whether all objects were received, connected whether no request has failed since.
	listed, connected bool
	// resumes is the first moment after they were received after failures.
	resumes time.Time
}

// NewWatch returns a watch of the objects O of a client. part returns their used part, with the metadata.
func NewWatch[L runtime.Object, O, T any](client Lister[L], selector fields.Selector, part func(O) T) *Watch[T] {
	w := &Watch[T]{
		Changed: func(bool) {}, Requested: func(string, error) {}, limiter: flowcontrol.NewTokenBucketRateLimiter(watchRate, watchBurst),
		transform: func(object any) (any, error) {
			if o, ok := object.(O); ok {
				return part(o), nil
			}
			return object, nil // a part
		},
	}
	w.objects = cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.WithTransformer(w.transform))
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector.String()
			return w.list(ctx, func(ctx context.Context) (runtime.Object, error) { return client.List(ctx, o) })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector.String()
			return w.watch(ctx, o, client.Watch)
		},
	}
	// The first repetition; further ones wait for their moment.
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1, Jitter: 1, Steps: math.MaxInt}
	w.reflector = cache.NewReflectorWithOptions(source, nil, store[T]{w.objects, w}, cache.ReflectorOptions{Name: selector.String(), Backoff: &backoff})
	return w
}

// Run watches until ctx ends.
func (w *Watch[T]) Run(ctx context.Context) { w.reflector.RunWithContext(ctx) }

// List returns the objects, and whether they were ever received.
func (w *Watch[T]) List() (objects []T, listed bool) {
	w.mu.Lock()
	listed = w.listed
	w.mu.Unlock()
	for _, object := range w.objects.List() {
		if o, ok := object.(T); ok {
			objects = append(objects, o)
		}
	}
	return objects, listed
}

// Get returns the object of a name without a namespace, the zero value if there is none, and whether all were ever
// received.
func (w *Watch[T]) Get(name string) (object T, listed bool) {
	w.mu.Lock()
	listed = w.listed // first, so that a missing object is evidence
	w.mu.Unlock()
	stored, _, _ := w.objects.GetByKey(name)
	object, _ = stored.(T)
	return object, listed
}

// Connected reports whether the objects were received, and no request has failed since.
func (w *Watch[T]) Connected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.connected
}

// Resumes returns the node's first moment after the objects were received again, after requests had failed;
// zero if that has not happened.
func (w *Watch[T]) Resumes() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resumes
}

// Err returns the error of the last request. It is Forbidden only if the one before it was, too: an API
// server that has just started knows no roles.
func (w *Watch[T]) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Watch[T]) list(ctx context.Context, send func(context.Context) (runtime.Object, error)) (runtime.Object, error) {
	// The reflector sends a list after each failed watch for all objects. It helps only if the API server has
	// no such watches.
	if err := w.Err(); err != nil && w.initial {
		return nil, err
	}
	w.wait(ctx)
	ctx, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	list, err := send(ctx)
	w.unsupported = w.unsupported || w.initial && err == nil
	w.done("list", err)
	return list, err
}

func (w *Watch[T]) watch(ctx context.Context, o metav1.ListOptions, send func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	all := o.SendInitialEvents != nil
	switch w.initial = all && !w.unsupported; {
	case all && w.unsupported:
		return nil, errUnsupported
	case !all && !w.Connected():
		// A restarted API server no longer has the version, and would refuse it with this error.
		return nil, apierrors.NewResourceExpired("a request has failed since")
	}
	w.wait(ctx)
	timeout := watchTimeout + rand.N(20*time.Second)
	seconds := int64(timeout.Seconds())
	o.TimeoutSeconds = &seconds
	ctx, cancel := context.WithCancel(ctx)
	silence := time.AfterFunc(timeout+RequestLimit, func() {
		w.done("watch", context.DeadlineExceeded)
		cancel()
	})
	end := func() {
		silence.Stop()
		cancel()
	}
	stream, err := send(ctx, o)
	if all && apierrors.IsInvalid(err) {
		w.done("watch", nil) // the API server has no such watches
	} else {
		w.done("watch", err)
	}
	if err != nil {
		end()
		return nil, err
	}
	return ended{stream, end}, nil
}

var errUnsupported = errors.New("the API server does not send all objects in a watch")

// ended is a watch with a function that is called at its end.
type ended struct {
	watch.Interface
	end func()
}

func (e ended) Stop() {
	e.end()
	e.Interface.Stop()
}

// wait delays a request that follows others too soon, and after failures until its moment. If ctx has ended,
// so does the request.
func (w *Watch[T]) wait(ctx context.Context) {
	w.mu.Lock()
	failures := w.failures
	w.mu.Unlock()
	for failures > 1 || failures > 0 && w.After != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.untilMoment()):
		}
		if w.After == nil || w.After() {
			break
		}
	}
	_ = w.limiter.Wait(ctx)
}

func (w *Watch[T]) untilMoment() time.Duration {
	return RetryInterval - (time.Duration(time.Now().UnixNano())-w.Offset)%RetryInterval
}

func (w *Watch[T]) done(verb string, err error) {
	w.mu.Lock()
	refused := apierrors.IsForbidden(err)
	if w.err = err; refused && !w.refused {
		w.err = errors.New(err.Error())
	}
	w.refused = refused
	if w.failures++; err == nil {
		w.failures = 0
	}
	w.connected = w.connected && err == nil
	w.mu.Unlock()
	w.Requested(verb, err)
}

// store is the reflector's access to the objects.
type store[T any] struct {
	cache.Store
	w *Watch[T]
}

// Transformer makes the reflector keep only parts of the objects while it receives all of them.
func (s store[T]) Transformer() cache.TransformFunc { return s.w.transform }

func (s store[T]) Add(object any) error { return s.changed(s.Store.Add(object)) }

func (s store[T]) Update(object any) error { return s.changed(s.Store.Update(object)) }

func (s store[T]) Delete(object any) error { return s.changed(s.Store.Delete(object)) }

func (s store[T]) Replace(objects []any, version string) error {
	err := s.Store.Replace(objects, version)
	s.w.mu.Lock()
	if s.w.listed && !s.w.connected {
		s.w.resumes = time.Now().Add(s.w.untilMoment())
	}
	s.w.listed, s.w.connected = true, true
	s.w.mu.Unlock()
	s.w.Changed(true)
	return err
}

func (s store[T]) changed(err error) error {
	s.w.Changed(false)
	return err
}
