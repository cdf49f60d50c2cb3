package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Resources of watches.
const (
	resourceNodes = "ciliumnodes"
	resourcePods  = "pods"
)

// Add adds an object of another resource than CiliumNodes, such as "nodes". Such objects can be
// listed, and read by name; AddPods adds pods that can be watched.
func (s *Server) Add(resource string, object Object) {
	s.set(func() { s.others[resource] = append(s.others[resource], object) })
}

// getOther sends the object of a resource that Add has added.
func (s *Server) getOther(w http.ResponseWriter, resource, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range s.others[resource] {
		if meta, _ := object["metadata"].(Object); meta["name"] == name {
			answer(w, http.StatusOK, object)
			return
		}
	}
	fail(w, http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q not found", resource, name))
}

// ExpireLists makes the server refuse the next further pages of lists because they have expired.
func (s *Server) ExpireLists(pages int) { s.set(func() { s.expire = pages }) }

// NoStreams makes the server refuse watches that request all objects, as Kubernetes before 1.34 does: clients
// send a list first.
func (s *Server) NoStreams() { s.set(func() { s.noStreams = true }) }

// list sends a page of the objects of a resource: limit of them, from the one that the token names.
func (s *Server) list(w http.ResponseWriter, r *http.Request, resource string) {
	query := r.URL.Query()
	offset, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	s.mu.Lock()
	items := s.selected(r, resource)
	version := strconv.Itoa(s.version)
	expired := offset > 0 && s.expire > 0
	if expired {
		s.expire--
	}
	s.mu.Unlock()
	if expired {
		fail(w, http.StatusGone, "Expired", "the provided continue parameter is too old")
		return
	}
	items = items[min(offset, len(items)):]
	meta := Object{"resourceVersion": version}
	if limit > 0 && limit < len(items) {
		items = items[:limit]
		meta["continue"] = strconv.Itoa(offset + limit)
	}
	kind := listKinds()[resource]
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		kind = [2]string{"meta.k8s.io/v1", "PartialObjectMetadataList"}
	}
	answer(w, http.StatusOK, Object{"apiVersion": kind[0], "kind": kind[1], "metadata": meta, "items": items})
}

// listKinds returns API version and kind of the list of each resource.
func listKinds() map[string][2]string {
	return map[string][2]string{"ciliumnodes": {"cilium.io/v2", "CiliumNodeList"}, "nodes": {"v1", "NodeList"}, "pods": {"v1", "PodList"}}
}

// selected returns the objects of a resource that the field selector of a request matches, in order.
func (s *Server) selected(r *http.Request, resource string) []Object {
	items := s.others[resource]
	if resource == resourceNodes {
		items = nil
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			items = append(items, s.objects[name])
		}
	}
	selected := []Object{}
	for _, object := range items {
		if selects(r, object) {
			selected = append(selected, object)
		}
	}
	return selected
}

// AddPods binds pods to a node with one change, and returns their names.
func (s *Server) AddPods(node string, count int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, count)
	for i := range names {
		name := "pod-" + strconv.Itoa(s.version+1)
		s.others[resourcePods] = append(s.others[resourcePods], s.record(resourcePods, name, Object{
			"apiVersion": "v1", "kind": "Pod", "metadata": Object{"name": name, "namespace": "default", "uid": "uid-" + name},
			"spec": Object{"nodeName": node}, "status": Object{"phase": "Pending"},
		}, "ADDED"))
		names[i] = name
	}
	return names
}

// DeletePods removes pods.
func (s *Server) DeletePods(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others[resourcePods] = slices.DeleteFunc(s.others[resourcePods], func(pod Object) bool {
		name, _ := pod["metadata"].(Object)["name"].(string)
		if !slices.Contains(names, name) {
			return false
		}
		s.record(resourcePods, name, pod, "DELETED")
		return true
	})
}
