package client_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

type response struct {
	code       int
	retryAfter string
	body       string
	// requestID is the header X-Request-Id.
	requestID string
}

// fakeDaemon sends one response to every request, and records the last request.
type fakeDaemon struct {
	response
	// request is the method and the URI, with the extension headers that were set.
	request string
}

func (s *fakeDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.request = r.Method + " " + r.URL.RequestURI()
	for _, name := range []string{"expiration", "skip-release-delay", "brief"} {
		if v := r.Header.Get(name); v != "" {
			s.request += " " + name + "=" + v
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if s.retryAfter != "" {
		w.Header().Set("Retry-After", s.retryAfter)
	}
	if s.requestID != "" {
		w.Header().Set("X-Request-Id", s.requestID)
	}
	w.WriteHeader(s.code)
	_, _ = io.WriteString(w, s.body)
}

// listen serves a handler on a new unix socket until stop is called.
func listen(h http.Handler) (socket string, stop func()) {
	// Not t.TempDir: the path of a socket has at most 107 bytes (unix(7)).
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		panic(err)
	}
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	server.Start()
	return socket, func() {
		server.Close()
		_ = os.RemoveAll(dir)
	}
}

// serve serves a handler on a new unix socket until the test ends.
func serve(t *testing.T, h http.Handler) (socket string) {
	t.Helper()
	socket, stop := listen(h)
	t.Cleanup(stop)
	return socket
}

func start(t *testing.T, r response, options ...client.Option) (*client.Client, *fakeDaemon) {
	t.Helper()
	s := &fakeDaemon{response: r}
	return connect(t, serve(t, s), options...), s
}

func connect(t *testing.T, socket string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(socket, options...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
