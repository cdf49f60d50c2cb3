// Package apiserver imitates the part of a Kubernetes API server that the bridge uses: CiliumNodes with
// optimistic locking, merge patches, dry runs, the status subresource and watches; pods; and Events. A write
// without a version is a conflict here, so that none goes unnoticed. A test sets the permissions.
package apiserver

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// nodesPath is the path of the CiliumNodes.
const nodesPath = "/apis/cilium.io/v2/ciliumnodes"

// Object is a JSON object.
type Object = map[string]any

// Server is a running API server.
type Server struct {
	http *httptest.Server
	mu   sync.Mutex
	// version is the version of the last change; changes are all changes, for the watches.
	version   int
	objects   map[string]Object
	changes   []change
	changed   chan struct{}
	events    []Event
	requested map[Permission]bool
	allowed   func(Permission) bool
	down      bool
	before    func()
	// others are the objects of other resources than CiliumNodes.
	others map[string][]Object
	// expire is the number of further pages that are refused because their list has expired.
	expire int
	// noStreams is set by NoStreams.
	noStreams bool
	// requests are the requests that were answered.
	requests []Request
	writes   int
	reads    int
}

// change is one line of a watch.
type change struct {
	version  int
	resource string
	name     string
	Type     string `json:"type"`
	Object   Object `json:"object"`
}

// Event is the part of a Kubernetes Event that tests compare.
type Event struct{ Reason, Message, Kind, Name string }

// Permission is one verb on one resource, as in a rule of RBAC.
type Permission struct{ Group, Resource, Verb string }

// Request is a request with the user agent of its client.
type Request struct {
	Permission
	Agent string
	At    time.Time
}

// Start runs a server until the test ends. It permits every request.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t, nil)
}

// start runs a server that accepts the connections of a listener, nil for those of a TCP address.
func start(t testing.TB, l net.Listener) *Server {
	t.Helper()
	s := &Server{
		objects: map[string]Object{}, others: map[string][]Object{}, changed: make(chan struct{}),
		requested: map[Permission]bool{}, allowed: func(Permission) bool { return true },
	}
	s.http = httptest.NewUnstartedServer(s)
	if l != nil {
		_ = s.http.Listener.Close()
		s.http.Listener = l
	}
	s.http.Start()
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Kubeconfig writes a kubeconfig for the server and returns its path.
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],`+
		`"contexts":[{"name":"c","context":{"cluster":"c","user":""}}],"current-context":"c"}`, s.http.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *Server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Allow permits only requests for which the function returns true.
func (s *Server) Allow(allowed func(Permission) bool) { s.set(func() { s.allowed = allowed }) }

// Down makes every request fail with 503, and ends every watch, until Up.
func (s *Server) Down() {
	s.set(func() { s.down = true })
	s.http.CloseClientConnections()
}

// Up ends Down.
func (s *Server) Up() { s.set(func() { s.down = false }) }

// BeforeWrites sets a function that is called before each patch of a CiliumNode, without a lock: it may
// write as another client.
func (s *Server) BeforeWrites(f func()) { s.set(func() { s.before = f }) }

// Requested returns the permissions that requests have needed since the start.
func (s *Server) Requested() map[Permission]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.requested)
}

// Events returns the Events that were created or patched so far.
func (s *Server) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// Counts returns the number of reads of single CiliumNodes, and of patches.
func (s *Server) Counts() (reads, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.writes
}

// Requests returns the requests that were answered so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	need, name := permissionOf(r)
	s.mu.Lock()
	s.requested[need] = true
	if !s.down {
		s.requests = append(s.requests, Request{need, r.UserAgent(), time.Now()})
	}
	allowed, down := s.allowed(need), s.down
	s.mu.Unlock()
	switch {
	case down:
		fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", "the API server is down")
	case !allowed:
		fail(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("cannot %s %s.%s", need.Verb, need.Resource, need.Group))
	case need.Verb == "create" || need.Resource == "events":
		s.event(w, r)
	case need.Verb == "watch":
		s.watch(w, r, need.Resource)
	case need.Verb == "list":
		s.list(w, r, need.Resource)
	case need.Verb == "get" && need.Resource == "nodes":
		s.getOther(w, need.Resource, name)
	case need.Verb == "get":
		s.get(w, name)
	case need.Verb == "patch":
		s.patch(w, r, need.Resource, name)
	default:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", r.Method+" "+r.URL.Path)
	}
}

// permissionOf returns the permission that a request needs, and the name of its object.
func permissionOf(r *http.Request) (need Permission, name string) {
	verbs := map[string]string{http.MethodGet: "get", http.MethodPatch: "patch", http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}
	need.Verb = verbs[r.Method]
	if rest, ok := strings.CutPrefix(r.URL.Path, nodesPath); ok {
		need.Group = "cilium.io"
		name, sub, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		need.Resource = strings.TrimSuffix("ciliumnodes/"+sub, "/")
		switch {
		case name == "" && r.URL.Query().Get("watch") != "":
			need.Verb = "watch"
		case name == "" && need.Verb == "get":
			need.Verb = "list"
		}
		return need, name
	}
	if resource, ok := strings.CutPrefix(r.URL.Path, "/api/v1/"); ok && !strings.Contains(resource, "/") {
		need = Permission{Resource: resource, Verb: "list"}
		if r.URL.Query().Get("watch") != "" {
			need.Verb = "watch"
		}
		return need, ""
	}
	if name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/"); ok {
		return Permission{Resource: "nodes", Verb: need.Verb}, name
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/"), "/")
	need.Resource = path[0]
	return need, ""
}
