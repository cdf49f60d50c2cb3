package e2e

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// A command lists attachments, and releases their addresses one after the other. One that another owner has got
// meanwhile is not released.
func TestReleaseOfReallocatedAddress(t *testing.T) {
	t.Parallel()
	next := container{"next", "eth0"}
	for name, tt := range map[string]struct {
		command []string
		// before returns the address that the command lists, and meanwhile gives it to next.
		before    func(t *testing.T, s *harness.Daemon) (ip string)
		meanwhile func(t *testing.T, s *harness.Daemon, ip string)
	}{
		"gc": {
			[]string{"gc", "--owner=demo", "--yes"},
			func(t *testing.T, s *harness.Daemon) string { return s.AllocateFor(t, "demo")[0] },
			func(t *testing.T, s *harness.Daemon, ip string) {
				s.Release(t, ip)
				request := next.request()
				request["args"] = "IP=" + ip
				cni(t, s, "add", request).WantStatus(t, http.StatusOK)
			},
		},
		"release --all, of a pod in cooldown": {
			[]string{"release", "--all", "--yes"},
			func(t *testing.T, s *harness.Daemon) string {
				old := container{"old", "eth0"}.request()
				old["args"] = next.request()["args"] // its pod
				cni(t, s, "add", old).WantStatus(t, http.StatusOK)
				cni(t, s, "del", old).WantStatus(t, http.StatusOK)
				return s.Attachment(t, "cni/old/eth0").Addresses[0].IP.String()
			},
			func(t *testing.T, s *harness.Daemon, ip string) {
				check.Equal(t, "addresses of the next container", addContainer(t, s, next), []string{ip})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := containerNode(t)
			n.Flags = append(n.Flags, "--release-delay=1h")
			s := n.Start(t)
			ip := tt.before(t, s)
			var once sync.Once
			socket := between(t, n, func(r *http.Request) {
				if r.Method == http.MethodDelete {
					once.Do(func() { tt.meanwhile(t, s, ip) })
				}
			})
			got := n.Command(t, append(tt.command, "-H", socket)...)
			check.Equal(t, "exit code", got.ExitCode, 0)
			wantState(t, s, next.owner(), "held")
			wantLease(t, n, ip, next)
		})
	}
}

// between serves a socket in front of the daemon's, and calls a function before it passes on a request.
func between(t *testing.T, n *harness.Node, before func(*http.Request)) (socket string) {
	t.Helper()
	socket = filepath.Join(filepath.Dir(n.Socket), "between.sock")
	l, err := net.Listen("unix", socket)
	check.Must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "localhost"})
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.Socket)
	}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before(r)
		proxy.ServeHTTP(w, r)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return socket
}
