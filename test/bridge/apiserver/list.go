package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Add adds an object of another resource than CiliumNodes, such as "nodes". Such objects can be
// listed, and read by name; AddPods adds pods that can be watched.
func (s *Server) Add(resource string, object Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others == nil {
		s.others = map[string][]Object{}
	}
	s.others[resource] = append(s.others[resource], object)
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
func (s *Server) ExpireLists(pages int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire = pages
}

// NoCiliumNodes makes lists of CiliumNodes fail as without their CRD.
func (s *Server) NoCiliumNodes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noCRD = true
}

// NoStreams makes the server refuse watches that request all objects, as Kubernetes before 1.34 does: clients
// send a list first.
func (s *Server) NoStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noStreams = true
}

// list sends a page of the objects of a resource: limit of them, from the one that the token names.
func (s *Server) list(w http.ResponseWriter, r *http.Request, resource string) {
	query := r.URL.Query()
	offset, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	s.mu.Lock()
	items := s.selected(r, resource)
	version := strconv.Itoa(s.version)
	noCRD := s.noCRD && resource == "ciliumnodes"
	expired := offset > 0 && s.expire > 0
	if expired {
		s.expire--
	}
	s.mu.Unlock()
	if noCRD {
		fail(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
		return
	}
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

// selected returns the objects of a resource that the selectors of a request match, in order.
func (s *Server) selected(r *http.Request, resource string) []Object {
	items := []Object{}
	if resource == "ciliumnodes" {
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			if selects(r, s.objects[name]) {
				items = append(items, s.objects[name])
			}
		}
		return items
	}
	key, value, labeled := strings.Cut(r.URL.Query().Get("labelSelector"), "=")
	for _, object := range s.others[resource] {
		meta, _ := object["metadata"].(Object)
		labels, _ := meta["labels"].(Object)
		if (!labeled || labels[key] == value) && selects(r, object) {
			items = append(items, object)
		}
	}
	return items
}
