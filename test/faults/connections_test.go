package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// answered is a response, or the error without one.
type answered struct {
	harness.Response
	err error
}

// requestOn sends a request on an open connection and keeps it open.
func requestOn(t *testing.T, conn net.Conn, request string) (status, body string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", request)
	harness.Must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	harness.Must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	harness.Must(t, err)
	return resp.Status, string(data)
}

// needDescriptors skips the test if the hard limit of descriptors is lower. The Go runtime raises
// the soft limit to it, also in the sidecar.
func needDescriptors(t *testing.T, files uint64) {
	t.Helper()
	var limit syscall.Rlimit
	harness.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Max < files {
		harness.Skipf(t, "%d descriptors are needed, the limit is %d (ulimit -Hn)", files, limit.Max)
	}
}

// connect opens that many connections, some concurrently, and calls begin for each.
func connect(t *testing.T, socket string, connections int, begin func(net.Conn) error) []net.Conn {
	t.Helper()
	all, errs := make([]net.Conn, connections), make([]error, connections)
	slots := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i := range connections {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if all[i], errs[i] = dial(socket); errs[i] == nil {
				errs[i] = begin(all[i])
			}
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, conn := range all {
			if conn != nil {
				conn.Close()
			}
		}
	})
	harness.Must(t, errors.Join(errs...))
	return all
}

// dial retries while the listener's backlog is full (connect(2), EAGAIN).
func dial(socket string) (net.Conn, error) {
	for {
		conn, err := net.Dial("unix", socket)
		if errors.Is(err, syscall.EAGAIN) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// Much longer than the server's own limits.
		return conn, conn.SetDeadline(time.Now().Add(5 * time.Minute))
	}
}

// getList requests the list of attachments as getOnce does.
func getList(conn net.Conn) error { return getOnce(conn, "/v1/ipam") }

// getOnce requests a path, reads the response and keeps the connection open.
func getOnce(conn net.Conn, path string) error {
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || resp.Close {
		return fmt.Errorf("answered %s, closing %t; want 200 and the connection kept", resp.Status, resp.Close)
	}
	return nil
}

// allocateInBackground allocates for that many owners concurrently.
func allocateInBackground(s *harness.Sidecar, name string, owners int) <-chan answered {
	answers := make(chan answered, owners)
	for i := range owners {
		go func() {
			for {
				a, err := s.Try(http.MethodPost, fmt.Sprintf("/v1/ipam?owner=%s-%d", name, i))
				if !errors.Is(err, syscall.EAGAIN) {
					answers <- answered{a, err}
					return
				}
			}
		}()
	}
	return answers
}
