// Package apiserver imitates as much of a Kubernetes API server as the bridge
// uses: CiliumNodes with optimistic locking (a write without a version is a
// conflict here, so that none goes unnoticed), merge patches, those that are only
// tried, the status subresource and watches; and Events. What nobody may do it forbids.
package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// nodesPath is where CiliumNodes are.
const nodesPath = "/apis/cilium.io/v2/ciliumnodes"

// Object is an object as JSON has it.
type Object = map[string]any

// Server is a running API server.
type Server struct {
	http *httptest.Server
	mu   sync.Mutex
	// version is that of the last change; changes are all of them, for watches.
	version int
	objects map[string]Object
	changes []change
	changed chan struct{}
	events  []Event
	done    map[Permission]bool
	may     func(Permission) bool
	down    bool
	before  func()
	writes  int
	reads   int
}

// change is one line of a watch.
type change struct {
	version int
	name    string
	Type    string `json:"type"`
	Object  Object `json:"object"`
}

// Event is what a test wants to know of a Kubernetes Event.
type Event struct{ Reason, Message, Kind, Name string }

// Permission is one thing that somebody does, as RBAC names it.
type Permission struct{ Group, Resource, Verb string }

// Start runs a server until the test ends. Everything is allowed.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{objects: map[string]Object{}, changed: make(chan struct{}), done: map[Permission]bool{}, may: func(Permission) bool { return true }}
	s.http = httptest.NewServer(s)
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Kubeconfig writes a file that names the server.
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

// Allow lets only what the function admits be done.
func (s *Server) Allow(may func(Permission) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.may = may
}

// Down makes every request fail with 503, and ends every watch, until Up.
func (s *Server) Down() {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.http.CloseClientConnections()
}

// Up ends Down.
func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// BeforeWrites is called before each patch of a CiliumNode is looked at, with
// nothing locked: somebody else may write then.
func (s *Server) BeforeWrites(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// Requested returns what was asked for since the start.
func (s *Server) Requested() map[Permission]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clone(s.done)
}

// Events returns the Events so far.
func (s *Server) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Event(nil), s.events...)
}

// Counts returns how many CiliumNodes were read one by one, and how many patched.
func (s *Server) Counts() (reads, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.writes
}

func clone[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	right, name := rightOf(r)
	s.mu.Lock()
	s.done[right] = true
	may, down := s.may(right), s.down
	s.mu.Unlock()
	switch {
	case down:
		fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", "the API server is away")
	case !may:
		fail(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("cannot %s %s.%s", right.Verb, right.Resource, right.Group))
	case right.Verb == "create" || right.Resource == "events":
		s.event(w, r)
	case right.Verb == "watch":
		s.watch(w, r)
	case right.Verb == "list":
		s.list(w, r)
	case right.Verb == "get":
		s.get(w, name)
	case right.Verb == "patch":
		s.patch(w, r, right.Resource, name)
	default:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed", r.Method+" "+r.URL.Path)
	}
}

// rightOf is what a request does, and to which object.
func rightOf(r *http.Request) (right Permission, name string) {
	verbs := map[string]string{http.MethodGet: "get", http.MethodPatch: "patch", http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}
	right.Verb = verbs[r.Method]
	if rest, ok := strings.CutPrefix(r.URL.Path, nodesPath); ok {
		right.Group = "cilium.io"
		name, sub, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		right.Resource = strings.TrimSuffix("ciliumnodes/"+sub, "/")
		switch {
		case name == "" && r.URL.Query().Get("watch") != "":
			right.Verb = "watch"
		case name == "" && right.Verb == "get":
			right.Verb = "list"
		}
		return right, name
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/"), "/")
	right.Resource = path[0]
	return right, ""
}

func (s *Server) get(w http.ResponseWriter, name string) {
	s.mu.Lock()
	s.reads++
	object := s.objects[name]
	s.mu.Unlock()
	if object == nil {
		fail(w, http.StatusNotFound, "NotFound", fmt.Sprintf("ciliumnodes.cilium.io %q not found", name))
		return
	}
	answer(w, http.StatusOK, object)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	items := []Object{}
	for name, object := range s.objects {
		if selects(r, name) {
			items = append(items, object)
		}
	}
	version := strconv.Itoa(s.version)
	s.mu.Unlock()
	answer(w, http.StatusOK, Object{"apiVersion": "cilium.io/v2", "kind": "CiliumNodeList", "metadata": Object{"resourceVersion": version}, "items": items})
}

func selects(r *http.Request, name string) bool {
	want, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return !ok || want == name
}

// watch sends what has changed since a version, and what changes from now on.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		// As a server that does not know it: the client lists then.
		fail(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch")
		return
	}
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	lines := json.NewEncoder(w)
	for {
		s.mu.Lock()
		news, next := s.changes, s.changed
		s.mu.Unlock()
		for _, c := range news {
			if c.version > since && selects(r, c.name) && lines.Encode(c) != nil {
				return
			}
			since = max(since, c.version)
		}
		w.(http.Flusher).Flush()
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request, resource, name string) {
	var body Object
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		fail(w, http.StatusUnsupportedMediaType, "UnsupportedMediaType", fmt.Sprint(err))
		return
	}
	tried := r.URL.Query().Get("dryRun") == "All"
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil && !tried {
		before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[name]
	if old == nil {
		fail(w, http.StatusNotFound, "NotFound", fmt.Sprintf("ciliumnodes.cilium.io %q not found", name))
		return
	}
	meta, _ := body["metadata"].(Object)
	if version, there := meta["resourceVersion"]; there && version != versionOf(old) || !there && !tried {
		fail(w, http.StatusConflict, "Conflict", "the object has been modified")
		return
	}
	part := "spec"
	if strings.HasSuffix(resource, "/status") {
		part = "status"
	}
	if tried {
		answer(w, http.StatusOK, old)
		return
	}
	s.writes++
	changed := clone(old)
	changed[part] = merge(old[part], body[part])
	answer(w, http.StatusOK, s.put(name, changed, "MODIFIED"))
}

// merge is a JSON merge patch (RFC 7386).
func merge(target, patch any) any {
	p, ok := patch.(Object)
	if !ok {
		return patch
	}
	t, _ := target.(Object)
	out := clone(t)
	for key, value := range p {
		if value == nil {
			delete(out, key)
			continue
		}
		out[key] = merge(out[key], value)
	}
	return out
}

func (s *Server) event(w http.ResponseWriter, r *http.Request) {
	var e struct {
		Reason, Message string
		InvolvedObject  struct{ Kind, Name string }
	}
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		fail(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	s.mu.Lock()
	s.events = append(s.events, Event{e.Reason, e.Message, e.InvolvedObject.Kind, e.InvolvedObject.Name})
	s.mu.Unlock()
	answer(w, http.StatusCreated, Object{"apiVersion": "v1", "kind": "Event", "metadata": Object{"name": "e", "namespace": "default"}})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // a client that is gone is no failure of the server
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	answer(w, code, Object{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code})
}
