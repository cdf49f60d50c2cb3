package cli

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// noon is the time at which every command of a test runs.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

type outcome struct {
	code           int
	stdout, stderr string
}

// testDependencies returns dependencies with this environment, at noon.
func testDependencies(env map[string]string) dependencies {
	return dependencies{
		version: "v1.2.3", env: env, now: noon, requestLimit: time.Minute, pollInterval: time.Millisecond, completionLimit: time.Minute,
		serve: func(context.Context, daemon.Config, logrus.FieldLogger) error {
			return errors.New("unexpected call of serve")
		},
	}
}

func (d dependencies) exec(t *testing.T, args ...string) outcome {
	t.Helper()
	return d.execContext(t.Context(), args...)
}

func (d dependencies) execContext(ctx context.Context, args ...string) outcome {
	var stdout, stderr strings.Builder
	code := cmdline.Execute(ctx, d.command(), args, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

// wants compares the exit code, all of stdout, and words that stderr must contain; without words
// stderr must be empty.
func (o outcome) wants(t *testing.T, code int, stdout string, words ...string) {
	t.Helper()
	if o.stdout != stdout {
		t.Errorf("stdout %q; want %q", o.stdout, stdout)
	}
	o.wantsAnyOutput(t, code, words...)
}

// wantsAnyOutput is wants for any stdout.
func (o outcome) wantsAnyOutput(t *testing.T, code int, words ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("exit code %d; want %d", o.code, code)
	}
	if len(words) == 0 && o.stderr != "" {
		t.Errorf("stderr %q; want nothing", o.stderr)
	}
	for _, want := range words {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("stderr %q; want %q in it", o.stderr, want)
		}
	}
}

type response struct {
	code        int
	contentType string
	retryAfter  string
	body        string
}

func jsonResponse(code int, body string) response {
	return response{code: code, contentType: "application/json", body: body}
}

// testDaemon serves canned responses on a unix socket and records the requests.
type testDaemon struct {
	socket string
	mu     sync.Mutex
	log    []string
	// responses are by "METHOD path", without the query. Each is served once, the last one
	// repeatedly.
	responses map[string][]response
}

// startDaemon serves until the test ends.
func startDaemon(t *testing.T, responses map[string][]response) *testDaemon {
	t.Helper()
	// Not t.TempDir: the path of a socket has at most 107 bytes (unix(7)).
	dir, err := os.MkdirTemp("", "cli")
	check.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &testDaemon{socket: filepath.Join(dir, "s"), responses: responses}
	l, err := net.Listen("unix", s.socket)
	check.Must(t, err)
	server := httptest.NewUnstartedServer(s)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return s
}

// ServeHTTP records the request and serves the next response.
func (s *testDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	next := s.next(r)
	if next == nil {
		http.NotFound(w, r)
		return
	}
	if next.contentType != "" {
		w.Header().Set("Content-Type", next.contentType)
	}
	if next.retryAfter != "" {
		w.Header().Set("Retry-After", next.retryAfter)
	}
	w.WriteHeader(next.code)
	_, _ = io.WriteString(w, next.body)
}

func (s *testDaemon) next(r *http.Request) *response {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := r.Method + " " + r.URL.RequestURI()
	for _, name := range []string{"expiration", "skip-release-delay", "brief"} {
		if v := r.Header.Get(name); v != "" {
			text += " " + name + "=" + v
		}
	}
	s.log = append(s.log, text)
	request := r.Method + " " + r.URL.Path
	all := s.responses[request]
	if len(all) == 0 {
		return nil
	}
	if len(all) > 1 {
		s.responses[request] = all[1:]
	}
	return &all[0]
}

func (s *testDaemon) wantRequests(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.log, want) {
		t.Errorf("the daemon got the requests %q; want %q", s.log, want)
	}
}

// dependencies returns dependencies whose environment names the daemon.
func (s *testDaemon) dependencies() dependencies {
	return testDependencies(map[string]string{options.SocketEnv: s.socket})
}

func put(t *testing.T, path, text string) {
	t.Helper()
	check.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	check.Must(t, err)
	return string(text)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		put(t, filepath.Join("testdata", name), got)
	}
	if want := read(t, name); got != want {
		t.Errorf("got\n%s\nwant, from testdata/%s,\n%s", got, name, want)
	}
}
