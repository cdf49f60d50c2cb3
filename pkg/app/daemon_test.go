package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/delegated-ipam/delegated-ipam/pkg/journal"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// told is a log that tests wait on.
type told struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines chan struct{}
}

func newLog() (*told, logrus.FieldLogger) {
	t := &told{lines: make(chan struct{}, 1)}
	log := logrus.New()
	log.SetOutput(t)
	return t, log
}

func (t *told) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	select {
	case t.lines <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (t *told) says(words string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Contains(t.text.String(), words)
}

// await returns when the log says the words, or ended is closed.
func (t *told) await(tb testing.TB, words string, ended <-chan error) {
	tb.Helper()
	for !t.says(words) {
		select {
		case <-t.lines:
		case err := <-ended:
			tb.Fatalf("it ended without saying %q: %v", words, err)
		}
	}
}

// run starts the daemon; the returned function stops it and gives its error.
func run(t *testing.T, c Config) (*told, <-chan error, func() error) {
	t.Helper()
	log, logger := newLog()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c, logger) }()
	return log, ended, func() error { cancel(); return <-ended }
}

func (c Config) get(t *testing.T, path string) *http.Response {
	t.Helper()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.SocketPath)
		},
	}
	res, err := (&http.Client{Transport: transport}).Get("http://localhost" + path)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func (c Config) health(t *testing.T) *models.StatusResponse {
	t.Helper()
	res := c.get(t, "/v1/healthz")
	defer res.Body.Close()
	var status models.StatusResponse
	if err := json.NewDecoder(res.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	return &status
}

func TestRun(t *testing.T) {
	t.Run("without a configuration it serves, is not ready, and says why", func(t *testing.T) {
		c := valid(t)
		log, ended, stop := run(t, c)
		log.await(t, "msg=Serving", ended)
		status := c.health(t)
		if status.DelegatedIpam.Ready || !strings.Contains(strings.Join(status.DelegatedIpam.Reasons, " "), c.CNIConfDir) {
			t.Errorf("ready %v, reasons %q; want not ready, for want of %s", status.DelegatedIpam.Ready, status.DelegatedIpam.Reasons, c.CNIConfDir)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.SocketPath); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after the end the socket is still there: %v", err)
		}
	})
	t.Run("a second instance waits for the state folder and takes over when the first has gone", func(t *testing.T) {
		c := valid(t)
		log, ended, stop := run(t, c)
		log.await(t, "msg=Serving", ended)
		second, secondEnded, stopSecond := run(t, c)
		second.await(t, fmt.Sprintf("PID %d", os.Getpid()), secondEnded)
		if second.says("msg=Serving") {
			t.Error("the second one serves while the first one does")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		second.await(t, "msg=Serving", secondEnded)
		if err := stopSecond(); err != nil {
			t.Error(err)
		}
	})
	t.Run("waiting for the state folder ends with the process", func(t *testing.T) {
		c := valid(t)
		lock, err := journal.Lock(context.Background(), c.StateDir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Unlock() //nolint:errcheck // nothing is done with the folder any more
		log, ended, stop := run(t, c)
		log.await(t, "waiting for the state folder", ended)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v; want that the wait was cancelled", err)
		}
	})
	t.Run("records that cannot be read are put aside and reported", func(t *testing.T) {
		c := valid(t)
		c.write(t, "state/attachments/torn-1.json", `{"version":1,"sha`)
		c.write(t, "state/attachments/later-1.json", `{"version":99,"sha256":"","record":{"owner":"router","pool":"default"}}`)
		log, ended, stop := run(t, c)
		log.await(t, "msg=Serving", ended)
		// A disk may take longer to answer than a report waits for it.
		harness.Eventually(t, "both to be reported", func() error {
			var files []string
			for _, q := range c.health(t).DelegatedIpam.Quarantined {
				files = append(files, q.File+": "+q.Reason)
			}
			all := strings.Join(files, "\n")
			for _, want := range []string{"torn-1", "later-1", "newer", "router"} {
				if !strings.Contains(all, want) {
					return fmt.Errorf("the report %q does not name %q", all, want)
				}
			}
			return nil
		})
		if err := stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(c.StateDir, "attachments/later-1.json")); err != nil {
			t.Errorf("the record of the newer version was touched: %v", err)
		}
	})
	t.Run("beside another sidecar of the same node and network it does not start", func(t *testing.T) {
		c, other := valid(t), valid(t)
		for _, x := range []Config{c, other} {
			x.write(t, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local"}}]}`)
		}
		other.NodeName = c.NodeName
		log, ended, stop := run(t, c)
		log.await(t, "msg=Serving", ended)
		_, logger := newLog()
		err := Run(context.Background(), other, logger)
		if err == nil || !strings.Contains(err.Error(), c.StateDir) {
			t.Errorf("error %v; want one that names the other's state folder", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := runAndStop(t, other); err != nil {
			t.Errorf("after the first one has gone: %v", err)
		}
	})
	t.Run("an invalid configuration is refused before anything is made", func(t *testing.T) {
		c := valid(t)
		c.NodeName = ""
		if err := Run(context.Background(), c, logrus.New()); err == nil || !strings.Contains(err.Error(), "--node-name") {
			t.Errorf("error %v", err)
		}
		if _, err := os.Stat(c.StateDir); err == nil {
			t.Error("the state folder was made")
		}
	})
	t.Run("a socket on which somebody listens is left to him", func(t *testing.T) {
		c := valid(t)
		l, err := net.Listen("unix", c.SocketPath)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		log := logrus.New()
		log.SetOutput(io.Discard)
		if err := Run(context.Background(), c, log); err == nil || !strings.Contains(err.Error(), c.SocketPath) {
			t.Errorf("error %v; want one that names the socket", err)
		}
	})
}

func runAndStop(t *testing.T, c Config) error {
	t.Helper()
	log, ended, stop := run(t, c)
	log.await(t, "msg=Serving", ended)
	return stop()
}

// write makes a file below the test's folder.
func (c Config) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(filepath.Dir(c.SocketPath), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
