package apiserver

import (
	"slices"
	"strconv"
)

// Resources of watches.
const (
	resourceNodes = "ciliumnodes"
	resourcePods  = "pods"
)

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
