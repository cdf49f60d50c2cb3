package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestReported(t *testing.T) {
	large := sandbox("large", ownUID)
	large.Annotations = map[string]string{"a": strings.Repeat("x", 5<<20)} // more than gRPC's default
	for name, tt := range map[string]struct {
		prepare func(f *fixture)
		runtime string
		ids     []string
	}{
		"every state": {func(f *fixture) { f.runtime.sandboxes[0].State = cri.PodSandboxState_SANDBOX_READY }, "containerd v2.4.2", []string{"a", "b", "c"}},
		"own pod by its label": {func(f *fixture) {
			f.runtime.sandboxes = []*cri.PodSandbox{{Id: "d", Labels: map[string]string{podUIDLabel: ownUID}}}
		}, "containerd v2.4.2", []string{"d"}},
		"without --pod-uid":   {func(f *fixture) { f.PodUID, f.runtime.sandboxes = "", []*cri.PodSandbox{sandbox("e", "")} }, "containerd v2.4.2", []string{"e"}},
		"large list":          {func(f *fixture) { f.runtime.sandboxes = []*cri.PodSandbox{large} }, "containerd v2.4.2", []string{"large"}},
		"runtime's long name": {func(f *fixture) { f.runtime.name = "a\n" + strings.Repeat("x", 300) }, "a " + strings.Repeat("x", 198) + "… (302 bytes)", []string{"a", "b", "c"}},
		"runtime's no name":   {func(f *fixture) { f.runtime.name = " " }, "unknown", []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tt.prepare(f)
			check.Must(t, f.round(t.Context()))
			check.Equal(t, "reports", f.daemon.taken(), []models.CNISandboxes{{Runtime: tt.runtime, Sandboxes: tt.ids}})
			check.Equal(t, "log", f.lines(), []string{"info Reports of the pod sandboxes succeed: "})
			for _, r := range f.runtime.requests {
				if list, is := r.(*cri.ListPodSandboxRequest); is && list.Filter != nil {
					t.Errorf("the list has the filter %v", list.Filter)
				} else if _, is := r.(*cri.VersionRequest); !is && list == nil {
					t.Errorf("the runtime got %T", r)
				}
			}
		})
	}
}

// A list that may lack sandboxes is never reported, because the daemon would release their addresses.
func TestNotReported(t *testing.T) {
	tooLarge := sandbox("large", ownUID)
	tooLarge.Annotations = map[string]string{"a": strings.Repeat("x", maxResponse)}
	for name, tt := range map[string]struct {
		prepare func(f *fixture)
		want    []string
	}{
		"empty list":                     {func(f *fixture) { f.runtime.sandboxes = nil }, []string{"has no pod sandbox", "--cri-socket"}},
		"empty list without --pod-uid":   {func(f *fixture) { f.PodUID, f.runtime.sandboxes = "", nil }, []string{"has no pod sandbox"}},
		"list without the own pod":       {func(f *fixture) { f.runtime.sandboxes = f.runtime.sandboxes[2:] }, []string{"has 1 pod sandboxes", ownUID, "--pod-uid"}},
		"error with a list":              {func(f *fixture) { f.runtime.err = errors.New("store closed") }, []string{"store closed", "see its log"}},
		"another version of CRI":         {func(f *fixture) { f.runtime.err = status.Error(codes.Unimplemented, "unknown service") }, []string{"unknown service", "version v1 of CRI"}},
		"too large":                      {func(f *fixture) { f.runtime.sandboxes = []*cri.PodSandbox{tooLarge} }, []string{"larger than max"}},
		"no answer":                      {func(f *fixture) { f.limit, f.runtime.hangs = short, make(chan struct{}, 1) }, []string{"no answer from the container runtime", short.String()}},
		"no runtime":                     {func(f *fixture) { f.runtime.stop() }, []string{"no such file", "start it, or set --cri-socket"}},
		"path that gRPC cannot read":     {func(f *fixture) { f.CRISocket = "unix:///%zz" }, []string{"--cri-socket", "/%zz", "expected"}},
		"the daemon refuses the list":    {func(f *fixture) { f.daemon.status, f.daemon.body = http.StatusBadRequest, `"too many"` }, []string{"refuses the list: too many"}},
		"the daemon refuses the caller":  {func(f *fixture) { f.daemon.status, f.daemon.body = http.StatusForbidden, `"not root"` }, []string{"not root", "as root"}},
		"the daemon lacks the operation": {func(f *fixture) { f.daemon.status, f.daemon.body = http.StatusNotFound, `"no path"` }, []string{"status 404", "version"}},
		"the daemon does not answer":     {func(f *fixture) { f.limit, f.daemon.hangs = short, true }, []string{"no answer from the", short.String()}},
		"no daemon":                      {func(f *fixture) { _ = os.Remove(f.SocketPath) }, []string{"no daemon can be reached", "start delegated-ipam"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tt.prepare(f)
			check.Must(t, f.round(t.Context()))
			if got := f.daemon.taken(); len(got) > 0 && f.daemon.status == http.StatusOK {
				t.Errorf("reported %v", got)
			}
			lines := f.lines()
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "warning The pod sandboxes were not reported: ") {
				t.Fatalf("logged %q; want one warning", lines)
			}
			check.Contains(t, lines[0], tt.want...)
		})
	}
}

func TestLog(t *testing.T) {
	f := newFixture(t)
	round := func(name string, err error, want ...string) {
		t.Helper()
		f.runtime.err = err
		check.Must(t, f.round(t.Context()))
		lines := f.lines()
		if !slices.EqualFunc(lines, want, strings.Contains) {
			t.Errorf("%s: logged %q; want %q", name, lines, want)
		}
	}
	one, two := errors.New("one"), errors.New("two")
	const succeed = "info Reports of the pod sandboxes succeed"
	round("first failure", one, "one; see")
	round("the same again", one)
	round("another one within the interval", two)
	round("success", nil, "(the last one since the previous line): the container runtime", succeed)
	round("success again", nil)
	round("a failure after it", two, "two; see")
	round("success after it", nil, succeed)
}

// A runtime that is restarted is found again.
func TestRuntimeRestarts(t *testing.T) {
	f := newFixture(t)
	for want, change := range []func(){func() {}, f.runtime.stop, func() { f.runtime.start(t) }} {
		change()
		check.Must(t, f.round(t.Context()))
		if got := len(f.daemon.taken()); got != []int{1, 0, 1}[want] {
			t.Errorf("step %d: %d reports", want, got)
		}
	}
}

// In a container the socket of the last runtime stays, removed on the host: as here a descriptor of it.
func TestStaleMount(t *testing.T) {
	f := newFixture(t)
	fd, err := unix.Open(f.runtime.socket, unix.O_PATH|unix.O_CLOEXEC, 0)
	check.Must(t, err)
	defer unix.Close(fd)
	f.CRISocket = fmt.Sprintf("unix:///proc/self/fd/%d", fd)
	check.Must(t, f.round(t.Context()))
	check.Equal(t, "reports", len(f.daemon.taken()), 1)
	f.runtime.stop()
	f.runtime.start(t)
	check.Error(t, f.run(t.Context(), nil), "connection refused", "was removed on the host", "start this container again")
	check.Equal(t, "reports", len(f.daemon.taken()), 0)
}

func TestTicks(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	ticks, ended := make(chan time.Time), make(chan error)
	go func() { ended <- f.run(ctx, ticks) }()
	for range 3 {
		ticks <- time.Time{}
	}
	if got := len(f.daemon.taken()); got < 3 {
		t.Errorf("%d reports before the third tick; want 3", got)
	}
	cancel()
	check.NoError(t, <-ended)
}

// SIGTERM ends the context, also in a call.
func TestEndInCall(t *testing.T) {
	f := newFixture(t)
	f.runtime.hangs = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.runtime.hangs
		cancel()
	}()
	check.NoError(t, f.run(ctx, nil))
	check.Equal(t, "log", f.lines(), nil)
	check.Equal(t, "reports", len(f.daemon.taken()), 0)
}

func TestRun(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.NoError(t, Run(ctx, options.CRI{CRISocket: f.CRISocket, SocketPath: f.SocketPath, Interval: time.Hour}, f.reporter.log))
}
