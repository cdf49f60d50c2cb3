package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuffer holds a log and notifies of new lines.
type logBuffer struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines chan struct{}
}

func newLog() (*logBuffer, logrus.FieldLogger) {
	b := &logBuffer{lines: make(chan struct{}, 1)}
	log := logrus.New()
	log.SetOutput(b)
	return b, log
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Write(p)
	select {
	case b.lines <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (b *logBuffer) contains(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.text.String(), text)
}

// await returns when the log contains a text, and fails if Run returns before.
func (b *logBuffer) await(tb testing.TB, text string, ended <-chan error) {
	tb.Helper()
	for !b.contains(text) {
		select {
		case <-b.lines:
		case err := <-ended:
			tb.Fatalf("Run returned before the log contained %q: %v", text, err)
		}
	}
}

// run calls Run in the background; the returned function ends it and returns its error.
func run(t *testing.T, c Config) (log *logBuffer, ended <-chan error, stop func() error) {
	t.Helper()
	log, logger := newLog()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- Run(ctx, c, logger) }()
	return log, result, func() error { cancel(); return <-result }
}

// runUntilServing calls Run and ends it when it serves.
func runUntilServing(t *testing.T, c Config) error {
	t.Helper()
	log, ended, stop := run(t, c)
	log.await(t, "msg=Serving", ended)
	return stop()
}

// write creates a file below the directory of the socket.
func write(t *testing.T, c Config, name, content string) {
	t.Helper()
	path := filepath.Join(filepath.Dir(c.SocketPath), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// transport returns a transport to the socket.
func transport(c Config) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.SocketPath)
		},
	}
}

// health returns the response of GET /v1/healthz.
func health(t *testing.T, c Config) *models.StatusResponse {
	t.Helper()
	res, err := (&http.Client{Transport: transport(c)}).Get("http://localhost/v1/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var status models.StatusResponse
	if err := json.NewDecoder(res.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	return &status
}
