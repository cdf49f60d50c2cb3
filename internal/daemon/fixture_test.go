package daemon

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
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
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

// serving calls Run in the background until it serves; the returned function ends it.
func serving(t *testing.T, c Config) (stop func()) {
	t.Helper()
	log, ended, end := run(t, c)
	log.await(t, "msg=Serving", ended)
	return func() { check.NoError(t, end()) }
}

func write(t *testing.T, c Config, name, content string) {
	t.Helper()
	path := filepath.Join(filepath.Dir(c.SocketPath), name)
	check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	check.Must(t, os.WriteFile(path, []byte(content), 0o600))
}

func transport(c Config) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.SocketPath)
		},
	}
}

func health(t *testing.T, c Config) *models.StatusResponse {
	t.Helper()
	res, err := (&http.Client{Transport: transport(c)}).Get("http://localhost/v1/healthz")
	check.Must(t, err)
	defer res.Body.Close()
	var status models.StatusResponse
	check.Must(t, json.NewDecoder(res.Body).Decode(&status))
	return &status
}
