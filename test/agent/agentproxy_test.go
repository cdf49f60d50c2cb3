package agent

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// proxySocket is the socket of agentProxy.
const proxySocket = "/run/agent-proxy.sock"

// agentProxy forwards the requests of cilium-cni to the agent, and records those for an address.
type agentProxy struct {
	mu sync.Mutex
	// requests has the requests for an address by their owner, NAMESPACE/POD.
	requests map[string][]addressRequest
}

// addressRequest is a POST /ipam of cilium-cni.
type addressRequest struct {
	arrived, answered time.Time
	// allocated reports whether the agent responded with an address.
	allocated bool
}

// serveProxy starts the proxy, through which cilium-cni is called from now on. It ends with the test.
func (tb *testbed) serveProxy(t *testing.T) *agentProxy {
	t.Helper()
	listener, err := net.Listen("unix", proxySocket)
	must(t, err)
	a := &agentProxy{requests: map[string][]addressRequest{}}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "localhost"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", agentSocket)
		}},
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/v1/ipam" {
			forward.ServeHTTP(w, r)
			return
		}
		one := addressRequest{arrived: time.Now()}
		recorded := &statusRecorder{ResponseWriter: w}
		forward.ServeHTTP(recorded, r)
		one.answered, one.allocated = time.Now(), recorded.status == http.StatusCreated
		a.add(r.URL.Query().Get("owner"), one)
	})}
	go func() { _ = server.Serve(listener) }() // until it is closed
	t.Cleanup(func() { server.Close() })
	tb.cniSocket = proxySocket
	return a
}

func (a *agentProxy) add(owner string, one addressRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[owner] = append(a.requests[owner], one)
}

// of returns the requests of a pod, in the order of their responses.
func (a *agentProxy) of(pod string) []addressRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[podNamespace+"/"+pod]
}

// statusRecorder keeps the status of a response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}
