package unixsock

import (
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
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// acceptWithin accepts connections within limits and sends a byte on each. It returns the socket's
// path, the server's end of each connection, and a function that stops and returns the log.
func acceptWithin(t *testing.T, callers Callers, limits limits) (path string, accepted <-chan net.Conn, stop func() string) {
	t.Helper()
	path = filepath.Join(shortTempDir(t), "s.sock")
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	repeated := logging.NewRepeated(log, time.Hour)
	limited, err := Listen(Options{Path: path, Mode: 0o666}, callers, repeated)
	check.Must(t, err)
	limits.user.requests, limits.pods = limits.user.connections, limits.user.connections
	limits.root = limits.user
	limited.(*listener).limits = limits
	check.Must(t, os.Chmod(filepath.Dir(path), 0o755))
	conns := make(chan net.Conn, 100)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := limited.Accept()
			if err != nil {
				return
			}
			_, err = conn.Write([]byte{1})
			check.NoError(t, err)
			conns <- conn
		}
	})
	stop = sync.OnceValue(func() string {
		check.Must(t, limited.Close())
		running.Wait()
		repeated.Stop()
		return out.String()
	})
	t.Cleanup(func() { stop() })
	return path, conns, stop
}

// admitted reports whether a connection as a user was accepted. It stays open.
func admitted(t *testing.T, path string, uid int) bool {
	t.Helper()
	conn, err := dialAs(t, path, uid)
	check.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.ReadFull(conn, make([]byte, 1))
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return err == nil
}

// A connection above a limit is refused if each other one has a request in progress.
//
//evidence:operate/security 20,000 connections with unfinished requests
func TestLimit(t *testing.T) {
	const first, second, third, denied, otherDenied, thirdDenied = 70001, 70002, 70003, 70011, 70012, 70013
	type step struct {
		uid  int
		want bool
	}
	for name, c := range map[string]struct {
		limits limits
		log    string
		steps  []step
	}{
		"one user": {
			limits{total: 9, ordinary: 9, user: counts{connections: 2}, refused: 9, refusedUser: 9},
			"2 of one user",
			[]step{{first, true}, {first, true}, {first, false}, {second, true}, {0, true}},
		},
		"ordinary users": {
			limits{total: 9, ordinary: 3, user: counts{connections: 2}, refused: 9, refusedUser: 9},
			"3 of users other than root",
			[]step{{first, true}, {first, true}, {second, true}, {third, false}, {0, true}},
		},
		"total": {
			limits{total: 3, ordinary: 9, user: counts{connections: 9}, refused: 9, refusedUser: 9},
			"3 in total",
			[]step{{0, true}, {first, true}, {second, true}, {0, false}, {third, false}},
		},
		"refused user": {
			limits{total: 9, ordinary: 9, user: counts{connections: 9}, refused: 9, refusedUser: 1},
			"1 of a user who may not call",
			[]step{{denied, true}, {denied, false}, {otherDenied, true}, {first, true}, {first, true}},
		},
		"refused users": {
			limits{total: 9, ordinary: 9, user: counts{connections: 9}, refused: 2, refusedUser: 1},
			"2 of users who may not call",
			[]step{{denied, true}, {otherDenied, true}, {thirdDenied, false}, {first, true}, {0, true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, accepted, stop := acceptWithin(t, Callers{UIDs: []int{first, second, third}}, c.limits)
			for i, s := range c.steps {
				if got := admitted(t, path, s.uid); got != s.want {
					t.Errorf("connection %d, of user %d: accepted is %t; want %t", i, s.uid, got, s.want)
				} else if got {
					begins(t, <-accepted)
				}
			}
			check.Contains(t, stop(), c.log)
		})
	}
}

// begins begins a request on a connection.
func begins(t *testing.T, c net.Conn) {
	t.Helper()
	begun, refusal := c.(*conn).listener.begin(c.(*conn), http.MethodPost, "/v1/ipam")
	check.True(t, begun, "the request was refused: %s", refusal)
}

func TestLimitClosedConnection(t *testing.T) {
	path, accepted, _ := acceptWithin(t, Callers{}, limits{total: 9, ordinary: 9, user: counts{connections: 1}, refused: 1, refusedUser: 1})
	for _, uid := range []int{0, 70001} {
		for range 3 {
			check.True(t, admitted(t, path, uid), "user %d: the first connection was closed", uid)
			c := <-accepted
			begins(t, c)
			check.True(t, !admitted(t, path, uid), "user %d: the second connection was accepted", uid)
			check.Must(t, c.Close())
			_ = c.Close() // must not count twice
		}
	}
}

// A connection above a limit replaces the oldest idle one of its user.
//
//evidence:operate/security idle connections, also of root
func TestIdleConnections(t *testing.T) {
	const first, second, denied, otherDenied = 70001, 70002, 70011, 70012
	const none = -1
	type step struct{ uid, closed int }
	for name, c := range map[string]struct {
		limits limits
		steps  []step
		// refused reports whether the last connection is refused.
		refused bool
	}{
		"one user":                        {limits{total: 9, ordinary: 9, user: counts{connections: 2}, refused: 9, refusedUser: 9}, []step{{first, none}, {second, none}, {first, none}, {first, 0}, {first, 2}}, false},
		"root":                            {limits{total: 9, ordinary: 9, user: counts{connections: 2}, refused: 9, refusedUser: 9}, []step{{first, none}, {0, none}, {0, none}, {0, 1}}, false},
		"refused user":                    {limits{total: 9, ordinary: 9, user: counts{connections: 9}, refused: 9, refusedUser: 1}, []step{{first, none}, {denied, none}, {denied, 1}}, false},
		"total":                           {limits{total: 2, ordinary: 9, user: counts{connections: 9}, refused: 9, refusedUser: 9}, []step{{0, none}, {first, none}, {first, 1}}, false},
		"total, root replaces others":     {limits{total: 2, ordinary: 9, user: counts{connections: 9}, refused: 9, refusedUser: 9}, []step{{first, none}, {second, none}, {0, 0}}, false},
		"total, only root's are idle":     {limits{total: 2, ordinary: 9, user: counts{connections: 9}, refused: 9, refusedUser: 9}, []step{{0, none}, {0, none}, {first, none}}, true},
		"those of a user with more":       {limits{total: 9, ordinary: 3, user: counts{connections: 9}, refused: 9, refusedUser: 9}, []step{{first, none}, {first, none}, {first, none}, {second, 0}}, false},
		"another user's stay":             {limits{total: 9, ordinary: 1, user: counts{connections: 9}, refused: 9, refusedUser: 9}, []step{{first, none}, {second, none}}, true},
		"another refused user's stay":     {limits{total: 9, ordinary: 9, user: counts{connections: 9}, refused: 1, refusedUser: 1}, []step{{denied, none}, {otherDenied, none}}, true},
		"root's own, not those of others": {limits{total: 9, ordinary: 9, user: counts{connections: 1}, refused: 9, refusedUser: 9}, []step{{first, none}, {0, none}, {0, 1}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			path, accepted, _ := acceptWithin(t, Callers{UIDs: []int{first, second}}, c.limits)
			var all []net.Conn
			for i, s := range c.steps {
				want := !c.refused || i < len(c.steps)-1
				check.Equal(t, fmt.Sprintf("connection %d is accepted", i), admitted(t, path, s.uid), want)
				if want {
					all = append(all, <-accepted)
				}
				if s.closed != none {
					_, err := all[s.closed].Write([]byte{1})
					check.True(t, errors.Is(err, net.ErrClosed), "connection %d: got %v; want it closed by connection %d", s.closed, err, i)
					all[s.closed] = nil
				}
			}
			for i, conn := range all {
				if conn != nil {
					_, err := conn.Write([]byte{1})
					check.True(t, err == nil, "connection %d: %v", i, err)
				}
			}
		})
	}
}

// A client that has not read its response has a request in progress.
func TestUnreadConnection(t *testing.T) {
	path, accepted, _ := acceptWithin(t, Callers{}, limits{total: 9, ordinary: 9, user: counts{connections: 1}, refused: 9, refusedUser: 9})
	client, err := net.Dial("unix", path)
	check.Must(t, err)
	defer client.Close()
	<-accepted // its byte is not read yet
	check.True(t, !admitted(t, path, os.Geteuid()), "the second connection was accepted")
	_, err = io.ReadFull(client, make([]byte, 1))
	check.Must(t, err)
	check.True(t, admitted(t, path, os.Geteuid()), "the third connection was closed")
}

// Requests in progress leave connections for pods and health.
//
//evidence:operate/security many requests in progress
func TestRequestLimits(t *testing.T) {
	path := filepath.Join(shortTempDir(t), "s.sock")
	l, err := listenAt(Options{Path: path})
	check.Must(t, err)
	l.(*listener).limits = limits{total: 9, ordinary: 9, root: counts{4, 2, 2}, refused: 9, refusedUser: 9, pods: 3}
	entered, leave, closed := make(chan struct{}), make(chan struct{}), make(chan struct{}, 9)
	server := Server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Wait") != "" {
			entered <- struct{}{}
			<-leave
		}
	}), logging.Discard())
	track := server.ConnState
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if track(c, state); state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	serveOn(t, server, l)
	request := func(path, header string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + header + "\r\n" }
	begin := func(path string) net.Conn {
		t.Helper()
		conn, err := net.Dial("unix", l.Addr().String())
		check.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		send(t, conn, request(path, "Wait: x\r\n"))
		<-entered
		return conn
	}
	// end reads the response of a connection, and returns when it does not count any more.
	end := func(conn net.Conn) int {
		t.Helper()
		defer func() { check.Must(t, conn.Close()); <-closed }()
		return readStatus(t, conn)
	}
	status := func(path string) int {
		t.Helper()
		conn, err := net.Dial("unix", l.Addr().String())
		check.Must(t, err)
		send(t, conn, request(path, ""))
		return end(conn)
	}
	ipam, second := begin("/v1/ipam"), begin("/v1/ipam")
	check.Equal(t, "a third request", status("/v1/ipam"), http.StatusServiceUnavailable)
	check.Equal(t, "a request of the CNI plugin", status("/v1/cni/add"), http.StatusOK)
	pod := begin("/v1/cni/add")
	check.Equal(t, "a second request of the CNI plugin", status("/v1/cni/del"), http.StatusServiceUnavailable)
	check.Equal(t, "health", status("/v1/healthz"), http.StatusOK)
	check.Equal(t, "config", status("/v1/config"), http.StatusOK)
	close(leave)
	check.Equal(t, "the second request", end(second), http.StatusOK)
	check.Equal(t, "the first one of the CNI plugin", end(pod), http.StatusOK)
	check.Equal(t, "the first request", readStatus(t, ipam), http.StatusOK)
	send(t, ipam, request("/v1/ipam", ""))
	check.Equal(t, "a request on the same connection", readStatus(t, ipam), http.StatusOK)
}

// Lists that are not read leave requests for the others of the same user, and lists for other users.
//
//evidence:operate/security lists that are not read
func TestListLimits(t *testing.T) {
	l := &listener{
		open: map[*conn]bool{}, log: logging.NewRepeated(logging.Discard(), time.Hour),
		limits: limits{root: counts{9, 9, 2}, user: counts{9, 9, 1}, ordinaryLists: 2},
	}
	begin := func(uid int, method, want string) *conn {
		t.Helper()
		c := &conn{uid: uid, ordinary: uid != 0, listener: l}
		l.open[c] = true
		_, refusal := l.begin(c, method, "/v1/ipam")
		check.Equal(t, fmt.Sprintf("refusal of %s of user %d", method, uid), refusal, want)
		return c
	}
	first := begin(1, http.MethodGet, "")
	begin(1, http.MethodGet, "1 lists of one user")
	begin(1, http.MethodPost, "")
	begin(2, http.MethodGet, "")
	begin(3, http.MethodGet, "2 lists of users other than root and the daemon's own")
	begin(0, http.MethodGet, "")
	begin(0, http.MethodGet, "")
	begin(0, http.MethodGet, "2 lists of one user")
	l.end(first)
	l.closed(begin(1, http.MethodGet, ""))
	begin(3, http.MethodGet, "")
}

// The router takes other spellings of a path for the same operation.
func TestLimitsOfPaths(t *testing.T) {
	l, err := listenAt(Options{Path: filepath.Join(shortTempDir(t), "s.sock")})
	check.Must(t, err)
	l.(*listener).limits = limits{total: 9, root: counts{9, 9, 0}, refused: 9, refusedUser: 9, pods: 9}
	serveOn(t, Server(http.NotFoundHandler(), logging.Discard()), l)
	for _, path := range []string{"/v1/ipam", "/v1/ipam/", "//v1/./ipam", "/v1/cni/../ipam"} {
		conn, err := net.Dial("unix", l.Addr().String())
		check.Must(t, err)
		send(t, conn, "GET "+path+" HTTP/1.0\r\n\r\n")
		check.Equal(t, "status of a list above the limit by "+path, readStatus(t, conn), http.StatusServiceUnavailable)
		check.Must(t, conn.Close())
	}
}

func TestNewLimits(t *testing.T) {
	check.Equal(t, "limits", newLimits(maxConnections), limits{
		total: 1024, root: counts{512, 384, 8}, user: counts{64, 48, 2}, ordinary: 256, ordinaryLists: 8, refused: 32, refusedUser: 8, pods: 480,
	})
	check.Equal(t, "limits with few descriptors", newLimits(32), limits{
		total: 32, root: counts{16, 12, 8}, user: counts{2, 1, 2}, ordinary: 8, ordinaryLists: 8, refused: 1, refusedUser: 1, pods: 15,
	})
}

//evidence:operate/security a header of more than 8 KiB or 100 lines; a body of more than 64 KiB (1 MiB for `/cni/…` by root)
func TestHeaderLimits(t *testing.T) {
	const start = "GET / HTTP/1.1\r\nHost: x\r\nX: "
	sized := func(size int) string { return start + strings.Repeat("x", size-len(start)-4) + "\r\n\r\n" }
	fields := func(n int) string { return "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("x:\r\n", n-3) + "\r\n" }
	for name, c := range map[string]struct {
		request string
		want    []int
	}{
		"8 KiB":               {sized(maxHeader), []int{http.StatusOK}},
		"more than 8 KiB":     {sized(maxHeader + 1), []int{http.StatusRequestHeaderFieldsTooLarge}},
		"unfinished":          {start + strings.Repeat("x", maxHeader), []int{http.StatusRequestHeaderFieldsTooLarge}},
		"100 lines":           {fields(maxLines), []int{http.StatusOK}},
		"more than 100 lines": {fields(maxLines + 1), []int{http.StatusBadRequest}},
		"two with 100 lines":  {fields(maxLines), []int{http.StatusOK, http.StatusOK}},
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := serve(t, Callers{})
			conn, err := net.Dial("unix", path)
			check.Must(t, err)
			defer conn.Close()
			for _, want := range c.want {
				send(t, conn, c.request)
				check.Equal(t, "status", readStatus(t, conn), want)
			}
		})
	}
}
