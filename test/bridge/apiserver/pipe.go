package apiserver

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc/test/bufconn"
	"k8s.io/client-go/rest"
)

// StartPiped runs a server without a network, for testing/synctest. config returns the configuration of a
// client.
func StartPiped(t testing.TB) (s *Server, config func(userAgent string) *rest.Config) {
	t.Helper()
	l := bufconn.Listen(64 << 10)
	return start(t, l), func(userAgent string) *rest.Config {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }
		return &rest.Config{Host: "http://pipe", UserAgent: userAgent, Dial: dial}
	}
}
