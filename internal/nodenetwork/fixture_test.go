package nodenetwork

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/delegated-ipam/delegated-ipam/internal/dirwatch"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/nodeevents"
	"github.com/delegated-ipam/delegated-ipam/internal/nodenetwork/internal/render"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

const (
	ranges = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local","ranges":"${ranges}"}}]}`
	fixed  = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/16"}]]}}]}`
	labels = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"calico-ipam","zone":"${labels[zone]}"}}]}`
)

// TestMain removes client-go's global error handlers: one sleeps depending on the time of the last
// error, which is not simulated time.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// fixture is an API server with a controller of the Node "worker", in simulated time.
type fixture struct {
	*controller
	client *fake.Clientset

	mu     sync.Mutex
	events []string
	// failing are the verbs of Node requests that fail, with their errors.
	failing map[string]error
	// hanging is the duration of a GET.
	hanging time.Duration
	// stream is the last watch.
	stream *watch.RaceFreeFakeWatcher
}

func (f *fixture) Event(_ runtime.Object, _, reason, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, reason)
}

// wantEvents checks the reasons of all Events.
func (f *fixture) wantEvents(t *testing.T, want string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := strings.Join(f.events, ","); got != want {
		t.Errorf("the Events are %q; want %q", got, want)
	}
}

func simulate(t *testing.T, template string, test func(t *testing.T, f *fixture)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		profiles, err := profile.Load()
		check.Must(t, err)
		f := &fixture{client: fake.NewClientset(), failing: map[string]error{}}
		f.client.PrependReactor("*", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			err := f.failure(action.GetVerb())
			return err != nil, nil, err
		})
		f.controller = &controller{
			log: logging.Discard(), name: "worker", template: filepath.Join(dir, "template"), output: output(filepath.Join(dir, "pods.conflist")),
			options: render.Options{Profiles: profiles}, problems: nodeevents.New(logging.Discard(), f, "worker"),
			status: newStatus(),
		}
		f.setTemplate(t, template)
		test(t, f)
		f.problems.Stop()
	})
}

// start runs the controller until the returned function is called.
func (f *fixture) start(t *testing.T) (stop func()) {
	t.Helper()
	f.confirmed, f.last, f.loop = false, nil, kube.NewLoop() // as after a restart
	f.connect(nodes{f.client.CoreV1().Nodes(), f})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.watch.Run(ctx) })
	running.Go(func() { f.run(ctx) })
	running.Go(func() { dirwatch.New(filepath.Dir(f.template), "template", f.log, f.wake).RunUnwatched(ctx) })
	synctest.Wait()
	return func() {
		cancel()
		running.Wait()
	}
}

// nodes is a client whose watches can fail, which the fake client does not support, and whose GET can
// hang without locking the fake client.
type nodes struct {
	typedcorev1.NodeInterface
	f *fixture
}

// Get ignores the time limit of its context.
func (n nodes) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Node, error) {
	n.f.mu.Lock()
	hanging := n.f.hanging
	n.f.mu.Unlock()
	time.Sleep(hanging)
	return n.NodeInterface.Get(ctx, name, o)
}

// Watch fails after a second, in which the controller observes the state before it. It sends the initial
// state, which the fake client does not.
func (n nodes) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := n.f.failure("watch"); err != nil {
		time.Sleep(time.Second)
		return nil, err
	}
	all, err := n.NodeInterface.List(ctx, o)
	if err != nil {
		return nil, err
	}
	changes, err := n.NodeInterface.Watch(ctx, o)
	if err != nil || o.SendInitialEvents == nil {
		return changes, err
	}
	stream := changes.(*watch.RaceFreeFakeWatcher)
	for _, n := range all.Items {
		stream.Add(&n)
	}
	stream.Action(watch.Bookmark, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	n.f.stream = stream
	return stream, nil
}

func (f *fixture) failure(verb string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failing[verb]
}

// failRequests makes the requests of some verbs fail; nil lets them succeed.
func (f *fixture) failRequests(err error, verbs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range verbs {
		f.failing[v] = err
	}
}

func unavailable() error { return apierrors.NewServiceUnavailable("down") }

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "worker", nil)
}

func (f *fixture) setTemplate(t *testing.T, text string) {
	t.Helper()
	check.Must(t, os.WriteFile(f.template, []byte(text), 0o644))
}

func (f *fixture) create(t *testing.T, uid string, podCIDRs ...string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.name, UID: types.UID(uid)}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}}
	if _, err := f.client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (f *fixture) update(t *testing.T, change func(n *corev1.Node)) {
	t.Helper()
	nodes := f.client.CoreV1().Nodes()
	n, err := nodes.Get(t.Context(), f.name, metav1.GetOptions{})
	check.Must(t, err)
	change(n)
	if _, err := nodes.Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (f *fixture) delete(t *testing.T) {
	t.Helper()
	check.Must(t, f.client.CoreV1().Nodes().Delete(t.Context(), f.name, metav1.DeleteOptions{}))
	synctest.Wait()
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantFile checks that the file has a text, or does not exist for an empty one.
func (f *fixture) wantFile(t *testing.T, text string) {
	t.Helper()
	content := f.output.read()
	switch {
	case text == "" && content != nil:
		t.Errorf("the file is\n%s\nwant none", content)
	case text != "" && (content == nil || !strings.Contains(strings.Join(strings.Fields(string(content)), ""), text)):
		t.Errorf("the file is\n%s\nwant %s in it", content, text)
	}
}

// wantReady checks the response of /readyz: 200 for an empty reason, otherwise 503 with it.
func (f *fixture) wantReady(t *testing.T, reason string) {
	t.Helper()
	f.wantProbe(t, "/readyz", reason)
}

func (f *fixture) wantProbe(t *testing.T, path, reason string) {
	t.Helper()
	w := httptest.NewRecorder()
	f.status.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	code := http.StatusOK
	if reason != "" {
		code = http.StatusServiceUnavailable
	}
	if w.Code != code || !strings.Contains(w.Body.String(), reason) {
		t.Errorf("%s: %d %q; want %d with %q", path, w.Code, w.Body, code, reason)
	}
}
