package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

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

// selects reports whether the field selector of a request, one field of one value, selects an object.
func selects(r *http.Request, object Object) bool {
	path, want, ok := strings.Cut(r.URL.Query().Get("fieldSelector"), "=")
	if !ok {
		return true
	}
	part, field, _ := strings.Cut(path, ".")
	fields, _ := object[part].(Object)
	return fields[field] == want
}

// watch sends the changes since a version, or all objects and the later changes (sendInitialEvents), as they
// happen.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	all := r.URL.Query().Get("sendInitialEvents") == "true"
	s.mu.Lock()
	refuse := all && s.noStreams
	s.mu.Unlock()
	if refuse {
		fail(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	lines := json.NewEncoder(w)
	if all {
		s.mu.Lock()
		initial := s.selected(r, resource)
		since = s.version
		s.mu.Unlock()
		for _, object := range initial {
			_ = lines.Encode(change{Type: "ADDED", Object: object}) // a client that has left is noticed below
		}
		kind := listKinds()[resource]
		_ = lines.Encode(change{Type: "BOOKMARK", Object: Object{
			"apiVersion": kind[0], "kind": strings.TrimSuffix(kind[1], "List"),
			"metadata": Object{"resourceVersion": strconv.Itoa(since), "annotations": Object{"k8s.io/initial-events-end": "true"}},
		}})
	}
	for {
		s.mu.Lock()
		changes, next := s.changes, s.changed
		s.mu.Unlock()
		for _, c := range changes {
			if c.version > since && c.resource == resource && selects(r, c.Object) && lines.Encode(c) != nil {
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
	dryRun := r.URL.Query().Get("dryRun") == "All"
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil && !dryRun {
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
	if version, there := meta["resourceVersion"]; there && version != versionOf(old) || !there && !dryRun {
		fail(w, http.StatusConflict, "Conflict", "the object has been modified")
		return
	}
	part := "spec"
	if strings.HasSuffix(resource, "/status") {
		part = "status"
	}
	if dryRun {
		answer(w, http.StatusOK, old)
		return
	}
	s.writes++
	changed := maps.Clone(old)
	changed[part] = merge(old[part], body[part])
	answer(w, http.StatusOK, s.put(name, changed, "MODIFIED"))
}

// merge is a JSON merge patch (RFC 7386).
func merge(target, patch any) any {
	p, ok := patch.(Object)
	if !ok {
		return patch
	}
	out := Object{}
	old, _ := target.(Object)
	maps.Copy(out, old)
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
	s.set(func() {
		s.events = append(s.events, Event{e.Reason, e.Message, e.InvolvedObject.Kind, e.InvolvedObject.Name})
	})
	answer(w, http.StatusCreated, Object{"apiVersion": "v1", "kind": "Event", "metadata": Object{"name": "e", "namespace": "default"}})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // a client that has left is not a failure of the server
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	answer(w, code, Object{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code})
}
