package faults

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// A user may have 512 connections (docs/operate/security.md).
	manyConnections = 400
	slowClients     = 100

	// memoryPerConnection limits the growth of the daemon's memory for a connection with a
	// request, without the race detector. net/http needs about a third of it.
	memoryPerConnection = 64 << 10

	// floodConnections are opened by each user, wave by wave.
	floodConnections = 20000
	floodWave        = 4000

	// floodMemory limits the resident memory of the daemon in bytes; its container has 256 MiB.
	floodMemory = 128 << 20
)

//evidence:design/reliability 400 idle connections, 100 slow clients
//evidence:operate/security a header not complete after 10 s, a request after 30 s, an idle connection of 2 min
func TestManyConnections(t *testing.T) {
	oneCase(t, overload)
	needDescriptors(t, 2*manyConnections)
	n := lightNode(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	s.Release(t, s.AllocateFor(t, "health")...) // the plugin's store is watched from here on
	harness.Eventually(t, "earlier connections to be closed", func() error {
		for _, socket := range sockets(t, s, "unix") {
			if socket[5] == "03" { // connected
				return fmt.Errorf("%q is open", socket)
			}
		}
		return nil
	})
	filesBefore, memoryBefore := openFiles(t, s), peakMemory(t, s)

	slow := connect(t, n.Socket, slowClients, func(conn net.Conn) error {
		_, err := io.WriteString(conn, "P") // and no more of the request
		return err
	})
	idle := connect(t, n.Socket, manyConnections, getList)
	if got := len(openFiles(t, s)) - len(filesBefore); got < manyConnections {
		t.Errorf("the daemon has %d descriptors more than before; want one for each of %d connections", got, manyConnections)
	}
	wantServed(t, s, held)
	s.Release(t, s.AllocateFor(t, "ingress")...)
	wantGrowth(t, s, memoryBefore, (manyConnections+slowClients)*memoryPerConnection)

	for _, conn := range slow {
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("a client with an incomplete request got %v; want the connection closed", err)
		}
	}
	for _, conn := range idle {
		conn.Close()
	}
	waitClosed(t, s, filesBefore)
	wantServed(t, s, held)
}

// A user who may call and one who may not open connections and send requests that never end.
//
//evidence:design/reliability 20,000 connections of one user with unfinished requests
//evidence:operate/security 20,000 connections with unfinished requests
func TestConnectionFlood(t *testing.T) {
	const start = "GET /v1/ipam HTTP/1.1\r\nHost: localhost\r\n"
	var fields strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&fields, "%x:\n", i)
	}
	t.Parallel()
	st := newStats(t, overload)
	for name, request := range map[string]string{
		"64 KiB of header":                 start + "X: " + strings.Repeat("x", 64<<10),
		"header just below the limit":      start + "X: " + strings.Repeat("x", 8000),
		"header of many fields":            start + fields.String(),
		"request whose body never arrives": "POST /v1/ipam?owner=flood HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n",
	} {
		for user, uid := range map[string]int{"allowed user": otherUID, "refused user": foreignUID} {
			t.Run(user+", "+name, func(t *testing.T) { // one after the other
				st.countCases(t, 1)
				flood(t, uid, request)
			})
		}
	}
}

// flood opens floodConnections as a user, and sends an unfinished request on each.
func flood(t *testing.T, uid int, request string) {
	needRoot(t)
	needDescriptors(t, 2*floodWave)
	n := lightNode(t)
	check.Must(t, os.Chmod(n.Dir, 0o711)) // search permission for the socket
	s := n.Start(t, "--socket-mode=0666", fmt.Sprintf("--allow-uids=%d", otherUID))
	held := s.AllocateFor(t, "router")
	user := harness.User{UID: uid, GID: uid}
	for range floodConnections / floodWave {
		wave := sendAs(t, n.Socket, user, floodWave, request)
		wantServed(t, s, held)
		for _, conn := range wave {
			conn.Close()
		}
	}
	wantGrowth(t, s, 0, floodMemory)
	harness.Eventually(t, "the user to be answered again", func() error {
		conn, err := s.DialAs(user)
		if err != nil {
			return err
		}
		defer conn.Close()
		return get(conn, "/v1/healthz")
	})
}

// sendAs opens that many connections as a user, and sends a request on each that the daemon accepts.
func sendAs(t *testing.T, socket string, user harness.User, connections int, request string) []net.Conn {
	t.Helper()
	var all []net.Conn
	var err error
	userErr := harness.RunAs(user, func() {
		for len(all) < connections && err == nil {
			var conn net.Conn
			if conn, err = dial(socket); err != nil {
				return
			}
			all = append(all, conn)
			if _, err = io.WriteString(conn, request); errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
				err = nil // the daemon has closed the connection
			}
		}
	})
	check.Must(t, errors.Join(userErr, err))
	return all
}

//evidence:design/reliability a flood of requests and a slow plugin
//evidence:operate/security more requests than the daemon can serve
func TestQueueFull(t *testing.T) {
	oneCase(t, overload)
	// Root and the owners of the agent may use three quarters (docs/operate/security.md, Callers).
	const maxProcesses, maxQueue = 4, 32
	const processes, queue, flood = maxProcesses * 3 / 4, maxQueue * 3 / 4, 360
	const requestWait = 80 * time.Second // docs/design/how-it-works.md, Waiting
	needDescriptors(t, 2*flood)
	n := lightNode(t)
	plugin := installPausable(t, n)
	s := n.Start(t, fmt.Sprintf("--max-plugin-processes=%d", maxProcesses), fmt.Sprintf("--max-queued-requests=%d", maxQueue), "--verify-interval=1h", "--plugin-timeout=10m")
	held := s.AllocateFor(t, "router")
	memoryBefore := peakMemory(t, s)

	plugin.pause(t)
	sent := time.Now()
	early := allocateInBackground(s, "early", queue/2)
	plugin.waitPausedADDs(t, processes)
	waitQueued(t, func() harness.Response { return s.Do(t, http.MethodGet, "/metrics") }, queue/2-processes) // before the requests of the flood
	wantServed(t, s, held)

	late := allocateInBackground(s, "late", flood)
	for range flood - queue/2 {
		a := <-late
		check.Must(t, a.err)
		a.WantError(t, http.StatusBadGateway, fmt.Sprintf("%d requests of user ID 0 are queued or in progress", queue), "--max-queued-requests")
		if a.Header.Get("Retry-After") == "" {
			t.Error("with a full queue a response lacks Retry-After")
		}
	}
	wantServed(t, s, held) // and it is ready
	wantGrowth(t, s, memoryBefore, flood*memoryPerConnection)

	plugin.resume(t)
	for range queue / 2 {
		for _, a := range []answered{<-early, <-late} {
			// On a busy machine the flood may take longer than a request waits.
			if a.err != nil || a.Status != http.StatusCreated && time.Since(sent) < requestWait {
				t.Errorf("a queued request was answered %s, %v; want 201", a.Response, a.err)
			}
		}
	}
	if got := plugin.most(t); got != processes {
		t.Errorf("%d plugin processes ran concurrently; want %d", got, processes)
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
	oneCase(t, overload)
	const limit = 128
	n := nodeWith(t)
	n.Wrapper = []string{needProgram(t, "prlimit"), fmt.Sprintf("--nofile=%d:%d", limit, limit)}
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	open := connect(t, n.Socket, 1, getList)[0]
	many := connect(t, n.Socket, 2*limit, func(net.Conn) error { return nil })
	s.WaitLog(t, "too many connections are open")
	// A further connection replaces an idle one, and there are descriptors for the plugin.
	for owner, want := range map[string]string{"ingress": "", "router": held[0]} {
		a, err := s.Try(http.MethodPost, "/v1/ipam?owner="+owner)
		check.Must(t, err)
		a.WantError(t, http.StatusCreated, want)
	}
	if _, err := open.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest connection: got %v; want it closed", err)
	}
	for _, conn := range many {
		conn.Close()
	}
}

// Root holds more idle connections than a user may have: they are closed in favor of further ones.
//
//evidence:design/reliability 600 idle connections of root
//evidence:operate/security idle connections, also of root
func TestIdleConnectionsOfRoot(t *testing.T) {
	oneCase(t, overload)
	const idle = 600
	needDescriptors(t, 2*idle)
	n := nodeWith(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	connect(t, n.Socket, idle, func(conn net.Conn) error { return get(conn, "/v1/config") })
	if o := n.Command(t, "probe", "live", "--timeout=1m"); o.ExitCode != 0 {
		t.Errorf("probe live ended with %+v", o)
	}
	wantServed(t, s, held)
	s.Release(t, s.AllocateFor(t, "ingress")...)
}

//evidence:design/reliability no descriptors left
func TestNoDescriptors(t *testing.T) {
	oneCase(t, overload)
	n := nodeWith(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	open := connect(t, n.Socket, 1, getList)[0]

	var before unix.Rlimit
	check.Must(t, unix.Prlimit(s.PID(), unix.RLIMIT_NOFILE, nil, &before))
	// Descriptors that are open already stay open.
	check.Must(t, unix.Prlimit(s.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}, nil))
	for path, status := range map[string]int{"?owner=ingress": 502, "/10.15.0.77?owner=restored": 500} {
		a, err := requestOn(open, "POST /v1/ipam"+path)
		check.Must(t, err)
		a.WantError(t, status, "too many open files")
	}

	check.Must(t, unix.Prlimit(s.PID(), unix.RLIMIT_NOFILE, &before, nil))
	harness.Eventually(t, "an allocate to work again", func() error {
		if a, err := s.Try(http.MethodPost, "/v1/ipam?owner=ingress"); err != nil || a.Status != http.StatusCreated {
			return fmt.Errorf("answered %s, %w", a, err)
		}
		return nil
	})
	wantServed(t, s, held)
	s.WaitConsistent(t)
}

// lightNode returns a node whose binary lacks the race detector, which multiplies the memory.
func lightNode(t *testing.T) *harness.Node {
	t.Helper()
	n := nodeWith(t)
	n.Program = harness.Failpoints(t)
	n.Flags = append(n.Flags, "--log-level=warning")
	return n
}

// wantServed sends requests that need no plugin call.
func wantServed(t *testing.T, s *harness.Daemon, held []string) {
	t.Helper()
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
	if a := s.Attachment(t, "router"); a == nil {
		t.Error("the list lacks the router")
	}
	wantHeld(t, s, "router", held)
}

// waitQueued waits until that many requests wait for a plugin process. get requests the metrics.
func waitQueued(t *testing.T, get func() harness.Response, requests int) {
	t.Helper()
	want := fmt.Sprintf("\ndelegated_ipam_queue_length{queue=\"process\"} %d\n", requests)
	harness.Eventually(t, "requests to wait for a process", func() error {
		if a := get(); !strings.Contains(string(a.Body), want) {
			return fmt.Errorf("the metrics lack %q", want)
		}
		return nil
	})
}
