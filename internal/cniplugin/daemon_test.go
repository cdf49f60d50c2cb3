package cniplugin

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// The first repetition comes soon, later ones about once a second, and no two processes in step.
func TestPause(t *testing.T) {
	const samples = 1000
	for attempts, most := range map[int]time.Duration{1: 50 * time.Millisecond, 2: 100 * time.Millisecond, 5: 800 * time.Millisecond, 6: time.Second, 1000: time.Second} {
		different := map[time.Duration]bool{}
		for range samples {
			p := pause(attempts)
			check.True(t, p >= most/2 && p <= most, "the pause after attempt %d is %s; want %s to %s", attempts, p, most/2, most)
			different[p] = true
		}
		check.True(t, len(different) > samples/2, "%d pauses after attempt %d have %d values", samples, attempts, len(different))
	}
}

// Many calls are served while another client of the same user holds as many idle connections as the
// user may have, and while more calls are in progress than that.
//
//evidence:operate/security many requests in progress
func TestManyCalls(t *testing.T) {
	const idle, callers, calls = 600, 600, 5
	dir, err := os.MkdirTemp("", "cniplugin") // its path is short
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "s")
	l, err := unixsock.Listen(unixsock.Options{Path: socket, Mode: 0o660}, unixsock.Callers{}, logging.NewRepeated(logging.Discard(), time.Hour))
	check.Must(t, err)
	// The first calls end when there are more of them than the limit of requests lets begin.
	var begun atomic.Int32
	full := make(chan struct{})
	s := unixsock.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if begun.Add(1) == 480 {
			close(full)
		}
		<-full
		_, _ = io.WriteString(w, result)
	}), logging.Discard())
	s.ReadHeaderTimeout, s.IdleTimeout = time.Hour, time.Hour // only the limit closes the idle ones
	s.ReadTimeout = time.Hour
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		check.Must(t, s.Close())
		<-served
	})

	for range idle {
		conn, err := net.Dial("unix", socket)
		check.Must(t, err)
		defer conn.Close()
	}
	var running sync.WaitGroup
	errs := make(chan error, callers*calls)
	for range callers {
		running.Go(func() {
			for range calls {
				body, err := daemon{socket, time.Hour, time.Hour}.call("POST /v1/cni/add", "", []byte("{}"))
				if err == nil && string(body) != result {
					err = fmt.Errorf("answered %q", body)
				}
				errs <- err
			}
		})
	}
	running.Wait()
	close(errs)
	for err := range errs {
		check.NoError(t, err)
	}
	check.Equal(t, "calls that reached the handler", begun.Load(), callers*calls)
}
