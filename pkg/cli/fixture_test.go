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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

// noon is the time at which every command of a test runs.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// outcome is how a command line ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// testProgram is a program in an environment of its own, at noon.
func testProgram(env map[string]string) program {
	return program{
		version: "v1.2.3", env: env, now: noon, requestLimit: time.Minute, pollEvery: time.Millisecond,
		serve: func(context.Context, app.Config, logrus.FieldLogger) error {
			return errors.New("no test expects to serve")
		},
	}
}

func (p program) runHere(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	code := p.run(t.Context(), args, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

// wants compares the exit status, all of stdout, and what stderr must say; with
// nothing to say stderr must be empty.
func (o outcome) wants(t *testing.T, code int, stdout string, says ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("ended with status %d; want %d", o.code, code)
	}
	if o.stdout != stdout {
		t.Errorf("printed %q; want %q", o.stdout, stdout)
	}
	if len(says) == 0 && o.stderr != "" {
		t.Errorf("printed %q to stderr; want nothing", o.stderr)
	}
	for _, s := range says {
		if !strings.Contains(o.stderr, s) {
			t.Errorf("printed %q to stderr; want it to say %q", o.stderr, s)
		}
	}
}

// answer is what the sidecar of a test says to a request.
type answer struct {
	code        int
	contentType string
	retryAfter  string
	body        string
}

// jsonAnswer is an answer with a JSON body.
func jsonAnswer(code int, body string) answer {
	return answer{code: code, contentType: "application/json", body: body}
}

// testSidecar answers on a unix socket as a test tells it, and notes what it was asked.
type testSidecar struct {
	socket string
	mu     sync.Mutex
	asked  []string
	// answers are for "METHOD path", without the query; of several the last one
	// is said again and again.
	answers map[string][]answer
}

// startSidecar serves until the test ends.
func startSidecar(t *testing.T, answers map[string][]answer) *testSidecar {
	t.Helper()
	// Not t.TempDir: the path of a socket has at most 107 bytes (unix(7)).
	dir, err := os.MkdirTemp("", "cli")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &testSidecar{socket: filepath.Join(dir, "s"), answers: answers}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(s)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return s
}

// ServeHTTP answers.
func (s *testSidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := r.Method + " " + r.URL.Path
	s.mu.Lock()
	text := r.Method + " " + r.URL.RequestURI()
	for _, name := range []string{"expiration", "skip-release-delay", "brief"} {
		if v := r.Header.Get(name); v != "" {
			text += " " + name + "=" + v
		}
	}
	s.asked = append(s.asked, text)
	all := s.answers[request]
	if len(all) > 1 {
		s.answers[request] = all[1:]
	}
	s.mu.Unlock()
	if len(all) == 0 {
		http.NotFound(w, r)
		return
	}
	if all[0].contentType != "" {
		w.Header().Set("Content-Type", all[0].contentType)
	}
	if all[0].retryAfter != "" {
		w.Header().Set("Retry-After", all[0].retryAfter)
	}
	w.WriteHeader(all[0].code)
	_, _ = io.WriteString(w, all[0].body)
}

// requests are what it was asked so far.
func (s *testSidecar) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// program is a program whose environment names the sidecar.
func (s *testSidecar) program() program {
	return testProgram(map[string]string{option.SocketEnv: s.socket})
}

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant, from %s,\n%s", got, path, want)
	}
}
