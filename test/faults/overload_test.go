package faults

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// A user may have 512 connections (docs/operate/security.md).
	manyConnections = 400
	slowClients     = 100

	// memoryPerConnection limits the growth of the sidecar's memory for a connection with a
	// request, without the race detector. net/http needs about a third of it.
	memoryPerConnection = 64 << 10
)

//evidence:design/reliability 400 idle connections, 100 slow clients
func TestManyConnections(t *testing.T) {
	t.Parallel()
	newStats(t, overload).countCase(t)
	needDescriptors(t, 2*manyConnections)
	n := lightNode(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	s.Release(t, s.AllocateFor(t, "health")...) // the plugin's store is watched from here on
	harness.Eventually(t, "earlier connections to be closed", func() error {
		if now := connections(t, s); now > 0 {
			return fmt.Errorf("%d are open", now)
		}
		return nil
	})
	filesBefore, memoryBefore := len(openFiles(t, s)), peakMemory(t, s)

	slow := connect(t, n.Socket, slowClients, func(conn net.Conn) error {
		_, err := io.WriteString(conn, "P") // and no more of the request
		return err
	})
	idle := connect(t, n.Socket, manyConnections, getList)
	if got := len(openFiles(t, s)) - filesBefore; got < manyConnections {
		t.Errorf("the sidecar has %d descriptors more than before; want one for each of %d connections", got, manyConnections)
	}
	wantServed(t, s, held)
	s.Release(t, s.AllocateFor(t, "ingress")...)
	grown := peakMemory(t, s) - memoryBefore
	t.Logf("the sidecar's memory grew by %d MiB", grown>>20)
	if grown > (manyConnections+slowClients)*memoryPerConnection {
		t.Errorf("the sidecar's memory grew by %d MiB for %d connections", grown>>20, manyConnections+slowClients)
	}

	for _, conn := range slow {
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("a client with an incomplete request got %v; want the connection closed", err)
		}
	}
	for _, conn := range idle {
		conn.Close()
	}
	harness.Eventually(t, "every descriptor to be closed", func() error {
		if now := len(openFiles(t, s)); now > filesBefore {
			return fmt.Errorf("%d are open, %d were before", now, filesBefore)
		}
		return nil
	})
	wantServed(t, s, held)
}

//evidence:design/reliability a flood of requests and a slow plugin
func TestQueueFull(t *testing.T) {
	t.Parallel()
	newStats(t, overload).countCase(t)
	const processes, queue, flood = 4, 32, 400
	needDescriptors(t, 2*flood)
	n := lightNode(t)
	plugin := installPausable(t, n)
	s := n.Start(t, fmt.Sprintf("--max-plugin-processes=%d", processes), fmt.Sprintf("--max-queued-requests=%d", queue), "--verify-interval=1h", "--plugin-timeout=10m")
	const requestWait = 80 * time.Second // docs/design/how-it-works.md, Waiting
	held := s.AllocateFor(t, "router")
	memoryBefore := peakMemory(t, s)

	plugin.pause(t)
	sent := time.Now()
	early := allocateInBackground(s, "early", queue/2)
	plugin.waitPausedADDs(t, processes)
	waitQueued(t, s, queue/2-processes) // before the requests of the flood
	wantServed(t, s, held)

	late := allocateInBackground(s, "late", flood)
	for range flood - queue/2 {
		wantRejectedByQueue(t, <-late)
	}
	if err := s.Ready(); err != nil {
		t.Errorf("with a full queue the sidecar is not ready: %v", err)
	}
	wantServed(t, s, held)
	grown := peakMemory(t, s) - memoryBefore
	t.Logf("the sidecar's memory grew by %d MiB", grown>>20)
	if grown > flood*memoryPerConnection {
		t.Errorf("the sidecar's memory grew by %d MiB for %d requests", grown>>20, flood)
	}

	plugin.resume(t)
	for range queue / 2 {
		for _, a := range []answered{<-early, <-late} {
			// On a busy machine the flood may take longer than a request waits.
			if a.err != nil || a.Status != http.StatusCreated && time.Since(sent) < requestWait {
				t.Errorf("a queued request was answered %s, %v; want 201", a.Response, a.err)
			}
		}
	}
	if most := plugin.maxCalls(t); most != processes {
		t.Errorf("%d plugin calls ran concurrently; want %d", most, processes)
	}
	if most := plugin.maxProcesses(t); most != processes {
		t.Errorf("%d plugin processes ran concurrently, including prestarted ones; want %d", most, processes)
	}
	wantServed(t, s, held)
	again := allocateInBackground(s, "again", queue/2)
	for range queue / 2 {
		if a := <-again; a.err != nil || a.Status != http.StatusCreated {
			t.Errorf("afterwards a request was answered %s, %v; want 201", a.Response, a.err)
		}
	}
	s.WaitConsistent(t)
}

//evidence:design/reliability few descriptors, many connections
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	newStats(t, overload).countCase(t)
	const limit = 128
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		harness.Skipf(t, "prlimit (util-linux) is needed to limit descriptors: %v", err)
	}
	n := nodeWith(t)
	n.Wrapper = []string{prlimit, fmt.Sprintf("--nofile=%d:%d", limit, limit)}
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	open := connect(t, n.Socket, 1, getList)[0]
	many := connect(t, n.Socket, 2*limit, func(net.Conn) error { return nil })
	harness.Eventually(t, "connections to be closed", func() error {
		if !strings.Contains(s.Log(), "too many connections are open") {
			return errors.New(s.Log())
		}
		return nil
	})
	// There are descriptors for the plugin.
	if status, body := requestOn(t, open, "POST /v1/ipam?owner=ingress"); !strings.HasPrefix(status, "201") {
		t.Errorf("an allocate is answered %s %s; want 201", status, body)
	}
	if status, body := requestOn(t, open, "POST /v1/ipam?owner=router"); !strings.Contains(body, held[0]) {
		t.Errorf("the router is answered %s %s; want %s", status, body, held[0])
	}
	for _, conn := range many {
		conn.Close()
	}
	harness.Eventually(t, "new connections to be served again", func() error {
		_, err := s.Try(http.MethodGet, "/v1/ipam")
		return err
	})
}

//evidence:design/reliability no descriptors left
func TestNoDescriptors(t *testing.T) {
	t.Parallel()
	newStats(t, overload).countCase(t)
	n := nodeWith(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	open := connect(t, n.Socket, 1, getList)[0]

	var before unix.Rlimit
	harness.Must(t, unix.Prlimit(s.PID(), unix.RLIMIT_NOFILE, nil, &before))
	// Descriptors that are open already stay open.
	harness.Must(t, unix.Prlimit(s.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}, nil))
	for path, want := range map[string]string{
		"POST /v1/ipam?owner=ingress":             "502",
		"POST /v1/ipam/10.15.0.77?owner=restored": "500",
	} {
		status, body := requestOn(t, open, path)
		if !strings.HasPrefix(status, want) || !strings.Contains(body, "too many open files") {
			t.Errorf("%s is answered %s %s; want %s and the reason", path, status, body, want)
		}
	}

	harness.Must(t, unix.Prlimit(s.PID(), unix.RLIMIT_NOFILE, &before, nil))
	harness.Eventually(t, "an allocate to work again", func() error {
		if a, err := s.Try(http.MethodPost, "/v1/ipam?owner=ingress"); err != nil || a.Status != http.StatusCreated {
			return fmt.Errorf("answered %s, %w", a, err)
		}
		return nil
	})
	wantServed(t, s, held)
	s.WaitConsistent(t)
}

// lightNode returns a node whose binary lacks the race detector, which multiplies the memory. Its
// failpoints are off.
func lightNode(t *testing.T) *harness.Node {
	t.Helper()
	n := nodeWith(t)
	n.Program = harness.Failpoints(t)
	n.Flags = append(n.Flags, "--log-level=warning")
	return n
}

// wantServed sends requests that need no plugin call.
func wantServed(t *testing.T, s *harness.Sidecar, held []string) {
	t.Helper()
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
	if a := s.Attachment(t, "router"); a == nil {
		t.Error("the list lacks the router")
	}
	wantHeld(t, s, "router", held)
}

// waitQueued waits until that many requests wait for a plugin process.
func waitQueued(t *testing.T, s *harness.Sidecar, requests int) {
	t.Helper()
	want := fmt.Sprintf("\ndelegated_ipam_queue_length{queue=\"process\"} %d\n", requests)
	harness.Eventually(t, "requests to wait for a process", func() error {
		if a := s.Do(t, http.MethodGet, "/metrics"); !strings.Contains(string(a.Body), want) {
			return fmt.Errorf("the metrics lack %q", want)
		}
		return nil
	})
}

func wantRejectedByQueue(t *testing.T, a answered) {
	t.Helper()
	switch {
	case a.err != nil:
		t.Errorf("with a full queue a request failed: %v; want a response", a.err)
	case a.Status != http.StatusBadGateway || a.Header.Get("Retry-After") == "" || !strings.Contains(string(a.Body), "--max-queued-requests"):
		t.Errorf("with a full queue a request was answered %s, Retry-After %q; want 502, Retry-After and the option", a.Response, a.Header.Get("Retry-After"))
	}
}
