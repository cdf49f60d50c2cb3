package sandboxes

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// fixture is a reporter between a fake runtime and a fake daemon.
type fixture struct {
	*reporter
	runtime *fakeRuntime
	daemon  *fakeDaemon
	log     *test.Hook
}

// ownUID is the UID of the reporter's pod.
const ownUID = "11111111-2222-3333-4444-555555555555"

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{
		runtime: &fakeRuntime{socket: filepath.Join(dir, "r"), sandboxes: []*cri.PodSandbox{sandbox("a", "x"), sandbox("b", ownUID), sandbox("c", "y")}},
		daemon:  &fakeDaemon{status: http.StatusOK},
	}
	f.runtime.start(t)
	log, hook := test.NewNullLogger()
	f.log = hook
	socket := filepath.Join(dir, "s")
	f.reporter = newReporter(options.CRI{CRISocket: "unix://" + f.runtime.socket, SocketPath: socket, PodUID: ownUID}, log)
	l, err := net.Listen("unix", socket)
	check.Must(t, err)
	server := &http.Server{Handler: f.daemon}
	go server.Serve(l)
	t.Cleanup(func() {
		f.failures.Stop()
		server.Close()
	})
	return f
}

// lines returns the lines of the log since the last call, each with its reason.
func (f *fixture) lines() (lines []string) {
	for _, e := range f.log.AllEntries() {
		reason, _ := e.Data["error"].(string)
		lines = append(lines, e.Level.String()+" "+e.Message+": "+reason)
	}
	f.log.Reset()
	return lines
}

func sandbox(id, uid string) *cri.PodSandbox {
	return &cri.PodSandbox{Id: id, Metadata: &cri.PodSandboxMetadata{Uid: uid}, State: cri.PodSandboxState_SANDBOX_NOTREADY}
}

// fakeRuntime serves CRI. It has the requests of every operation, also of those that it does not implement.
type fakeRuntime struct {
	cri.UnimplementedRuntimeServiceServer
	socket    string
	server    *grpc.Server
	sandboxes []*cri.PodSandbox
	name      string
	err       error
	// hangs, if it is not nil, gets a value in each ListPodSandbox, which then does not answer.
	hangs chan struct{}

	mu       sync.Mutex
	requests []any
}

// start serves at the socket until stop, or the end of the test.
func (f *fakeRuntime) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", f.socket)
	check.Must(t, err)
	f.server = grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		f.mu.Lock()
		f.requests = append(f.requests, request)
		f.mu.Unlock()
		return handle(ctx, request)
	}))
	cri.RegisterRuntimeServiceServer(f.server, f)
	go f.server.Serve(l)
	t.Cleanup(f.stop)
}

func (f *fakeRuntime) stop() { f.server.Stop() }

func (f *fakeRuntime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	if f.name == "" {
		return &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"}, nil
	}
	return &cri.VersionResponse{RuntimeName: f.name}, nil
}

func (f *fakeRuntime) ListPodSandbox(ctx context.Context, _ *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	if f.hangs != nil {
		f.hangs <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	// Also a runtime that answers with a part of the list and an error.
	return &cri.ListPodSandboxResponse{Items: f.sandboxes}, f.err
}

// fakeDaemon answers each report with a status.
type fakeDaemon struct {
	status int
	body   string
	hangs  bool

	mu      sync.Mutex
	reports []models.CNISandboxes
}

func (f *fakeDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var report models.CNISandboxes
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil || r.Method+r.URL.Path != "POST/v1/cni/sandboxes" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if f.hangs {
		<-r.Context().Done()
		return
	}
	f.mu.Lock()
	f.reports = append(f.reports, report)
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	w.Write([]byte(f.body))
}

// taken returns the reports since the last call.
func (f *fakeDaemon) taken() []models.CNISandboxes {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.reports)
	f.reports = nil
	return all
}

// short is a limit for calls that get no answer.
const short = 50 * time.Millisecond
