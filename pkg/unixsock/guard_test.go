package unixsock

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

func quiet() logrus.FieldLogger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

func TestCallersAreRootOurselvesAndWhoIsNamed(t *testing.T) {
	stranger := Peer{UID: 70001, GID: 70002, Groups: []int{70003, 70004}}
	for name, c := range map[string]struct {
		callers Callers
		peer    Peer
		want    bool
	}{
		"root may":                          {Callers{}, Peer{UID: 0, GID: 0}, true},
		"our own user may":                  {Callers{}, Peer{UID: os.Geteuid(), GID: 70002}, true},
		"a stranger may not":                {Callers{}, stranger, false},
		"a named user may":                  {Callers{UIDs: []int{1, 70001}}, stranger, true},
		"a named primary group may":         {Callers{GIDs: []int{70002}}, stranger, true},
		"a named supplementary group may":   {Callers{GIDs: []int{70004}}, stranger, true},
		"a user is not a group":             {Callers{UIDs: []int{70002, 70003}, GIDs: []int{70001}}, stranger, false},
		"root's group without its user not": {Callers{}, Peer{UID: 70001, GID: 0}, false},
		"other named ones do not help":      {Callers{UIDs: []int{5}, GIDs: []int{6}}, stranger, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.callers.Allow(c.peer); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

// serve runs a guarded server over a real socket. The handler notes each
// request that reaches it, with the peer it came from.
func serve(t *testing.T, callers Callers) (path string, reached chan Peer) {
	t.Helper()
	path = filepath.Join(folder(t), "s.sock")
	l, err := Listen(Options{Path: path, Mode: 0o666})
	must(t, err)
	must(t, os.Chmod(filepath.Dir(path), 0o755))
	reached = make(chan Peer, 10)
	s := Server(Authorize(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		peer, _ := PeerFrom(r.Context())
		reached <- peer
	}), callers, quiet()), quiet())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		must(t, s.Close())
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return path, reached
}

// ask sends one request over a connection that dial makes.
func ask(t *testing.T, dial func() (net.Conn, error), method, target string) *http.Response {
	t.Helper()
	conn, err := dial()
	must(t, err)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://any.host.at.all"+target, nil)
	must(t, err)
	resp, err := client.Do(req)
	must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// asStranger connects under the credentials of another user, which the kernel
// notes for the connection: on a thread of its own that ends with them.
func asStranger(t *testing.T, path string, uid int, groups ...uint32) (net.Conn, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("connecting as another user needs root")
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		// The raw calls change this thread; package syscall's change all.
		_, _, e1 := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
		_, _, e2 := syscall.RawSyscall(unix.SYS_SETRESGID, uintptr(uid), uintptr(uid), uintptr(uid))
		_, _, e3 := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
		if e1 != 0 || e2 != 0 || e3 != 0 {
			done <- result{err: errors.Join(e1, e2, e3)}
			return
		}
		conn, err := net.Dial("unix", path)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

func TestOurOwnUserIsLetThroughWithItsPeerKnown(t *testing.T) {
	path, reached := serve(t, Callers{})
	dial := func() (net.Conn, error) { return net.Dial("unix", path) }
	resp := ask(t, dial, http.MethodPost, "/v1/ipam")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %s", resp.Status)
	}
	if got := <-reached; got.PID != os.Getpid() || got.UID != os.Geteuid() || got.GID != os.Getegid() {
		t.Errorf("peer %+v, want PID %d, user %d, group %d", got, os.Getpid(), os.Geteuid(), os.Getegid())
	}
}

func TestAStrangerIsRefusedEverythingButHealth(t *testing.T) {
	for name, c := range map[string]struct {
		method, target string
		want           int
	}{
		"allocate":                       {http.MethodPost, "/v1/ipam", http.StatusForbidden},
		"release":                        {http.MethodDelete, "/v1/ipam/10.0.0.1", http.StatusForbidden},
		"list":                           {http.MethodGet, "/v1/ipam", http.StatusForbidden},
		"config":                         {http.MethodGet, "/v1/config", http.StatusForbidden},
		"what does not exist":            {http.MethodGet, "/x", http.StatusForbidden},
		"a path that only looks alike":   {http.MethodGet, "/v1/healthz/../ipam", http.StatusForbidden},
		"health by another method":       {http.MethodPost, "/v1/healthz", http.StatusForbidden},
		"health":                         {http.MethodGet, "/v1/healthz", http.StatusOK},
		"health with a query of its own": {http.MethodGet, "/v1/healthz?brief=true", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			path, reached := serve(t, Callers{UIDs: []int{70002}})
			resp := ask(t, func() (net.Conn, error) { return asStranger(t, path, 70001) }, c.method, c.target)
			if resp.StatusCode != c.want {
				t.Errorf("status %s, want %d", resp.Status, c.want)
			}
			if body, err := io.ReadAll(resp.Body); err != nil || len(body) != 0 {
				t.Errorf("body %q, %v", body, err)
			}
			if got, want := len(reached), map[int]int{http.StatusOK: 1}[c.want]; got != want {
				t.Errorf("%d requests came through, want %d", got, want)
			}
		})
	}
}

func TestANamedStrangerIsLetThrough(t *testing.T) {
	for name, callers := range map[string]Callers{
		"by user":                {UIDs: []int{70001}},
		"by primary group":       {GIDs: []int{70001}},
		"by supplementary group": {GIDs: []int{70100}},
	} {
		t.Run(name, func(t *testing.T) {
			path, reached := serve(t, callers)
			dial := func() (net.Conn, error) { return asStranger(t, path, 70001, 70099, 70100) }
			if resp := ask(t, dial, http.MethodPost, "/v1/ipam"); resp.StatusCode != http.StatusOK {
				t.Fatalf("status %s", resp.Status)
			}
			if got := <-reached; got.UID != 70001 {
				t.Errorf("peer %+v", got)
			}
		})
	}
}

func TestARequestWithoutAKnownPeerIsRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := Server(Authorize(http.NotFoundHandler(), Callers{}, quiet()), quiet())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	dial := func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	if resp := ask(t, dial, http.MethodGet, "/v1/ipam"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %s", resp.Status)
	}
	must(t, s.Close())
	<-done
}

func TestABodyIsBounded(t *testing.T) {
	path := filepath.Join(folder(t), "s.sock")
	l, err := Listen(Options{Path: path})
	must(t, err)
	readErr := make(chan error, 1)
	s := Server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		readErr <- err
	}), quiet())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	for size, tooLarge := range map[int]bool{maxBody: false, maxBody + 1: true} {
		resp, err := client.Post("http://x/", "text/plain", strings.NewReader(strings.Repeat("x", size)))
		must(t, err)
		must(t, resp.Body.Close())
		_, got := errors.AsType[*http.MaxBytesError](<-readErr)
		if got != tooLarge {
			t.Errorf("%d bytes: too large is %t, want %t", size, got, tooLarge)
		}
	}
	must(t, s.Close())
	<-done
}

func TestTheServersLimitsFitTheClients(t *testing.T) {
	s := Server(http.NotFoundHandler(), quiet())
	const clientsGiveUp = 90
	if s.WriteTimeout.Seconds() <= clientsGiveUp {
		t.Errorf("answers are cut off after %s; clients wait for %d s", s.WriteTimeout, clientsGiveUp)
	}
	for what, d := range map[string]float64{
		"header": s.ReadHeaderTimeout.Seconds(), "read": s.ReadTimeout.Seconds(), "idle": s.IdleTimeout.Seconds(),
	} {
		if d <= 0 {
			t.Errorf("there is no %s limit", what)
		}
	}
}

func TestTheServersOwnWordsGoToTheLog(t *testing.T) {
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	Server(http.NotFoundHandler(), log).ErrorLog.Print("http: something")
	if !strings.Contains(out.String(), "level=warning") || !strings.Contains(out.String(), "http: something") {
		t.Errorf("logged %q", out.String())
	}
}

// The same as above for where tests do not run as root: the peer is put where
// Server would have put it.
func TestGuardJudgesByThePeerOfTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		peer           *Peer
		method, target string
		want           int
	}{
		"root":                        {&Peer{UID: 0}, http.MethodPost, "/v1/ipam", http.StatusOK},
		"a named user":                {&Peer{UID: 70002}, http.MethodPost, "/v1/ipam", http.StatusOK},
		"a stranger":                  {&Peer{UID: 70001}, http.MethodPost, "/v1/ipam", http.StatusForbidden},
		"a stranger who asks health":  {&Peer{UID: 70001}, http.MethodGet, "/v1/healthz", http.StatusOK},
		"a stranger who posts health": {&Peer{UID: 70001}, http.MethodPost, "/v1/healthz", http.StatusForbidden},
		"nobody known":                {nil, http.MethodPost, "/v1/ipam", http.StatusForbidden},
		"nobody known asks health":    {nil, http.MethodGet, "/v1/healthz", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			reached := false
			h := Authorize(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }), Callers{UIDs: []int{70002}}, quiet())
			ctx := t.Context()
			if c.peer != nil {
				ctx = context.WithValue(ctx, peerKey{}, *c.peer)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, c.method, c.target, nil))
			if w.Code != c.want || w.Body.Len() != 0 {
				t.Errorf("status %d with body %q, want %d without one", w.Code, w.Body, c.want)
			}
			if reached != (c.want == http.StatusOK) {
				t.Errorf("came through: %t", reached)
			}
		})
	}
}
