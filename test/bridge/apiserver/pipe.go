package apiserver

import (
	"context"
	"net"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// StartPiped runs a server without a network, for testing/synctest. config returns the configuration of a
// client.
func StartPiped(t testing.TB) (s *Server, config func(userAgent string) *rest.Config) {
	t.Helper()
	p := &pipes{connections: make(chan net.Conn), closed: make(chan struct{})}
	s = start(t, p)
	return s, func(userAgent string) *rest.Config {
		return &rest.Config{Host: "http://pipe", UserAgent: userAgent, Dial: p.dial}
	}
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	connections chan net.Conn
	once        sync.Once
	closed      chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.connections <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
