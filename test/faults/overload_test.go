package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	manyConnections = 5000
	slowClients     = 200

	// memoryPerConnection is what the sidecar may grow by, without the race
	// detector, for a connection with a request. About a third is what net/http needs.
	memoryPerConnection = 64 << 10
)

func TestThousandsOfConnectionsAndSlowClientsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	newTally(t, overload).watch(t)
	mayOpen(t, 2*manyConnections)
	n := lightNode(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	harness.Eventually(t, "the connections of before to be closed", func() error {
		if now := connections(t, s); now > 0 {
			return fmt.Errorf("%d are open", now)
		}
		return nil
	})
	filesBefore, memoryBefore := len(openFiles(t, s)), bench{Sidecar: s}.peakMemory(t)

	slow := connect(t, n.Socket, slowClients, func(conn net.Conn) error {
		_, err := io.WriteString(conn, "P") // and nothing more
		return err
	})
	idle := connect(t, n.Socket, manyConnections, askOnce)
	if got := len(openFiles(t, s)) - filesBefore; got < manyConnections {
		t.Errorf("the sidecar has %d descriptors more than before; want one for each of %d connections", got, manyConnections)
	}
	wantServed(t, s, held)
	s.Release(t, s.AllocateFor(t, "ingress")...)
	grown := bench{Sidecar: s}.peakMemory(t) - memoryBefore
	t.Logf("the sidecar's memory grew by %d MiB", grown>>20)
	if grown > (manyConnections+slowClients)*memoryPerConnection {
		t.Errorf("the sidecar's memory grew by %d MiB for %d connections", grown>>20, manyConnections+slowClients)
	}

	for _, conn := range slow {
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("a client that does not finish its question: %v; want the connection closed", err)
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

func TestAFullQueueIsRefusedClearlyAndEmptiesByItself(t *testing.T) {
	t.Parallel()
	newTally(t, overload).watch(t)
	const processes, queue, flood = 4, 32, 2000
	mayOpen(t, 2*flood)
	n := lightNode(t)
	plugin := newGated(t, n)
	s := n.Start(t, fmt.Sprintf("--max-plugin-processes=%d", processes), fmt.Sprintf("--max-queued-requests=%d", queue), "--verify-interval=1h",
		"--plugin-timeout=1m") // how long the flood takes is the machine's to say
	held := s.AllocateFor(t, "router")
	memoryBefore := bench{Sidecar: s}.peakMemory(t)

	plugin.shut(t)
	early := allocateInBackground(s, "early", queue/2)
	plugin.awaitADDs(t, processes)
	awaitQueued(t, s, queue/2-processes) // else one of the flood may be before one of these
	wantServed(t, s, held)

	late := allocateInBackground(s, "late", flood)
	for range flood - queue/2 {
		wantTurnedAway(t, <-late)
	}
	if err := s.Ready(); err != nil {
		t.Errorf("with a full queue: %v; want it ready", err)
	}
	wantServed(t, s, held)
	grown := bench{Sidecar: s}.peakMemory(t) - memoryBefore
	t.Logf("the sidecar's memory grew by %d MiB", grown>>20)
	if grown > flood*memoryPerConnection {
		t.Errorf("the sidecar's memory grew by %d MiB for %d requests", grown>>20, flood)
	}

	plugin.open(t)
	for range queue / 2 {
		for _, a := range []answered{<-early, <-late} {
			if a.err != nil || a.Status != http.StatusCreated {
				t.Errorf("a request that waited was answered %s, %v; want 201", a.Response, a.err)
			}
		}
	}
	if most := plugin.most(t); most != processes {
		t.Errorf("%d plugin calls ran at one time; want %d at most, and at the gate so many", most, processes)
	}
	if most := plugin.mostProcesses(t); most != processes {
		t.Errorf("there were %d plugin processes at one time, those that stood by counted; want %d at most", most, processes)
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

func TestWithoutDescriptorsRequestsAreRefusedAndNothingIsLost(t *testing.T) {
	t.Parallel()
	newTally(t, overload).watch(t)
	const limit = 128
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		cannot(t, "prlimit (util-linux) is needed to take descriptors away: %v", err)
	}
	n := nodeWith(t)
	n.Wrapper = []string{prlimit, fmt.Sprintf("--nofile=%d:%d", limit, limit)}
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	open := connect(t, n.Socket, 1, askOnce)[0] // accepted while there is room

	many := connect(t, n.Socket, 2*limit, func(net.Conn) error { return nil })
	harness.Eventually(t, "all descriptors to be used", func() error {
		if now := len(openFiles(t, s)); now < limit {
			return fmt.Errorf("%d of %d are", now, limit)
		}
		return nil
	})
	for path, want := range map[string]string{
		"POST /v1/ipam?owner=ingress":             "502",
		"POST /v1/ipam/10.15.0.77?owner=restored": "500",
	} {
		status, body := askOn(t, open, path)
		if !strings.HasPrefix(status, want) || !strings.Contains(body, "too many open files") {
			t.Errorf("%s is answered %s %s; want %s and the reason", path, status, body, want)
		}
	}

	for _, conn := range many {
		conn.Close()
	}
	harness.Eventually(t, "an allocate to work again", func() error {
		if a, err := s.Try(http.MethodPost, "/v1/ipam?owner=ingress"); err != nil || a.Status != http.StatusCreated {
			return fmt.Errorf("answered %s, %w", a, err)
		}
		return nil
	})
	wantServed(t, s, held)
	s.WaitConsistent(t)
}

// askOn asks on an open connection and keeps it.
func askOn(t *testing.T, conn net.Conn, request string) (status, body string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", request)
	must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.Status, string(data)
}

// lightNode runs a binary without the race detector, which takes a multiple of
// the memory. Its failpoints are off.
func lightNode(t *testing.T) *harness.Node {
	t.Helper()
	n := nodeWith(t)
	n.Program = harness.Failpoints(t)
	n.Flags = append(n.Flags, "--log-level=warning")
	return n
}

// mayOpen ends the test where so many descriptors are not to be had. The Go
// runtime has raised our limit to the hard one, as the sidecar's will.
func mayOpen(t *testing.T, files uint64) {
	t.Helper()
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Max < files {
		cannot(t, "%d descriptors are needed, and the limit is %d (ulimit -Hn)", files, limit.Max)
	}
}

// connect opens so many connections, some at a time, and begins each.
func connect(t *testing.T, socket string, connections int, begin func(net.Conn) error) []net.Conn {
	t.Helper()
	all, errs := make([]net.Conn, connections), make([]error, connections)
	places := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i := range connections {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
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
	must(t, errors.Join(errs...))
	return all
}

// dial tries again while the kernel has no room for a connection that nobody has
// accepted yet (connect(2), EAGAIN).
func dial(socket string) (net.Conn, error) {
	for {
		conn, err := net.Dial("unix", socket)
		if errors.Is(err, syscall.EAGAIN) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// The server's own limits are to end a connection, long before this.
		return conn, conn.SetDeadline(time.Now().Add(5 * time.Minute))
	}
}

// connections is how many the sidecar has open on its socket (proc_pid_net(5), unix).
func connections(t *testing.T, s *harness.Sidecar) int {
	t.Helper()
	const connected = "03"
	ours, open := socketInodes(t, s), 0
	for _, line := range socketLines(t, s, "unix") {
		if f := strings.Fields(line); len(f) > 6 && f[5] == connected && slices.Contains(ours, f[6]) {
			open++
		}
	}
	return open
}

// askOnce asks a question, takes the answer, and keeps the connection.
func askOnce(conn net.Conn) error {
	if _, err := io.WriteString(conn, "GET /v1/ipam HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
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

// wantServed asks what needs no plugin call.
func wantServed(t *testing.T, s *harness.Sidecar, held []string) {
	t.Helper()
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
	if a := s.Attachment(t, "router"); a == nil {
		t.Error("the list does not have the router")
	}
	wantHeld(t, s, "router", held)
}

// answered is an answer, or why there is none.
type answered struct {
	harness.Response
	err error
}

// allocateInBackground asks for so many owners at once.
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

// awaitQueued waits until so many requests wait for a plugin process.
func awaitQueued(t *testing.T, s *harness.Sidecar, requests int) {
	t.Helper()
	want := fmt.Sprintf("\ndelegated_ipam_queue_length{queue=\"process\"} %d\n", requests)
	harness.Eventually(t, "the early ones to wait for a process", func() error {
		if a := s.Do(t, http.MethodGet, "/metrics"); !strings.Contains(string(a.Body), want) {
			return fmt.Errorf("the metrics do not say %q", want)
		}
		return nil
	})
}

func wantTurnedAway(t *testing.T, a answered) {
	t.Helper()
	switch {
	case a.err != nil:
		t.Errorf("a request that finds the queue full: %v; want an answer", a.err)
	case a.Status != http.StatusBadGateway || a.Header.Get("Retry-After") == "" || !strings.Contains(string(a.Body), "--max-queued-requests"):
		t.Errorf("a request that finds the queue full is answered %s, Retry-After %q; want 502, when to ask again, and the limit's name", a.Response, a.Header.Get("Retry-After"))
	}
}
