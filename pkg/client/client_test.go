package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

var ip, v6 = netip.MustParseAddr("10.15.0.2"), netip.MustParseAddr("fd00:15::2")

// calls are the operations of the client, each with defaults.
var calls = map[string]func(context.Context, *client.Client) error{
	"allocate": func(ctx context.Context, c *client.Client) error {
		return second(c.Allocate(ctx, "router", client.AllocateOptions{}))
	},
	"restore": func(ctx context.Context, c *client.Client) error {
		return c.Restore(ctx, ip, "router", client.RestoreOptions{})
	},
	"release": func(ctx context.Context, c *client.Client) error {
		return c.Release(ctx, ip, client.ReleaseOptions{})
	},
	"release owner": func(ctx context.Context, c *client.Client) error {
		return second(c.ReleaseOwner(ctx, "router", client.ReleaseOptions{Pool: "blue"}))
	},
	"list":         func(ctx context.Context, c *client.Client) error { return second(c.List(ctx)) },
	"status":       func(ctx context.Context, c *client.Client) error { return second(c.Status(ctx)) },
	"brief status": func(ctx context.Context, c *client.Client) error { return second(c.BriefStatus(ctx)) },
	"ping":         func(ctx context.Context, c *client.Client) error { return c.Ping(ctx) },
}

func second[T any](_ T, err error) error { return err }

func TestNew(t *testing.T) {
	for name, tt := range map[string]struct{ socket, want string }{
		"path":         {"/run/ipam.sock", "/run/ipam.sock"},
		"with scheme":  {"unix:///run/ipam.sock", "/run/ipam.sock"},
		"empty":        {"", ""},
		"scheme only":  {"unix://", ""},
		"other scheme": {"tcp://localhost:80", ""},
		"abstract":     {"@ipam", ""},
		"abstract URL": {"unix://@ipam", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := client.New(tt.socket)
			if tt.want == "" {
				if err == nil || !strings.Contains(err.Error(), client.DefaultSocket) {
					t.Errorf("got %v, %v; want an error with an example", c, err)
				}
				return
			}
			if err != nil || c.Socket() != tt.want {
				t.Errorf("got %v, %v; want %s", c, err, tt.want)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	const allocated = `{"address":{"ipv4":"10.15.0.2"},"host-addressing":{}}`
	ctx := t.Context()
	for name, tt := range map[string]struct {
		call func(c *client.Client) error
		body string
		want string
	}{
		"allocate": {
			func(c *client.Client) error {
				return second(c.Allocate(ctx, "kube-system/a b", client.AllocateOptions{}))
			}, allocated, "POST /v1/ipam?owner=kube-system%2Fa+b",
		},
		"allocate with all options": {
			func(c *client.Client) error {
				return second(c.Allocate(ctx, "pod", client.AllocateOptions{Family: client.IPv6, Pool: "blue", Expiration: true}))
			}, allocated, "POST /v1/ipam?family=ipv6&owner=pod&pool=blue expiration=true",
		},
		"allocate without owner": {
			func(c *client.Client) error { return second(c.Allocate(ctx, "", client.AllocateOptions{})) },
			allocated, "POST /v1/ipam",
		},
		"restore with all options": {
			func(c *client.Client) error {
				return c.Restore(ctx, ip, "router", client.RestoreOptions{Pool: "blue", Also: v6})
			}, "", "POST /v1/ipam/10.15.0.2?also=fd00%3A15%3A%3A2&owner=router&pool=blue",
		},
		"restore IPv6": {
			func(c *client.Client) error { return c.Restore(ctx, v6, "router", client.RestoreOptions{}) },
			"", "POST /v1/ipam/fd00:15::2?owner=router",
		},
		"release": {
			func(c *client.Client) error { return c.Release(ctx, ip, client.ReleaseOptions{}) },
			"", "DELETE /v1/ipam/10.15.0.2",
		},
		"release with all options": {
			func(c *client.Client) error {
				return c.Release(ctx, ip, client.ReleaseOptions{Pool: "blue", Owner: "router", SkipReleaseDelay: true})
			}, "", "DELETE /v1/ipam/10.15.0.2?owner=router&pool=blue skip-release-delay=true",
		},
		"release a leak": {
			func(c *client.Client) error {
				return c.Release(ctx, ip, client.ReleaseOptions{Lease: "cilium-agent-router-0123456789abcdef"})
			}, "", "DELETE /v1/ipam/10.15.0.2?lease=cilium-agent-router-0123456789abcdef",
		},
		"release with zone": {
			func(c *client.Client) error { return c.Release(ctx, v6.WithZone("eth0"), client.ReleaseOptions{}) },
			"", "DELETE /v1/ipam/fd00:15::2%25eth0",
		},
		"brief status": {
			func(c *client.Client) error { return second(c.BriefStatus(ctx)) }, "{}", "GET /v1/healthz brief=true",
		},
		"ping": {func(c *client.Client) error { return c.Ping(ctx) }, "", "GET /v1/config"},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := start(t, response{code: 200, body: tt.body})
			if err := tt.call(c); err != nil {
				t.Error(err)
			}
			if s.request != tt.want {
				t.Errorf("sent %q; want %q", s.request, tt.want)
			}
		})
	}
}

func TestNoServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none")
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			err := call(t.Context(), connect(t, socket))
			var dial *net.OpError
			if !errors.As(err, &dial) || dial.Op != "dial" || !strings.HasPrefix(err.Error(), "the daemon at "+socket+": dial unix") {
				t.Errorf("got %v; want the failed dial, once", err)
			}
		})
	}
}

func TestTimeLimits(t *testing.T) {
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	socket := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-done:
		}
	}))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx   context.Context
		limit time.Duration
		want  error
	}{
		"timeout of the client": {t.Context(), time.Millisecond, context.DeadlineExceeded},
		"canceled context":      {canceled, 0, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, socket, client.WithTimeout(tt.limit))
			for call, f := range calls {
				if err := f(tt.ctx, c); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), socket) {
					t.Errorf("%s: got %v; want %v of the socket", call, err, tt.want)
				}
			}
		})
	}
}
