package apiserver

import (
	"encoding/json"
	"maps"
	"strconv"
	"testing"
)

// Node is a CiliumNode as the agent and the tests see it.
type Node struct {
	Version string
	Pool    map[string]Entry
	Used    map[string]Entry
	Release map[string]string
}

// Entry is an entry of the pool or of the used addresses.
type Entry struct {
	Owner    string `json:"owner,omitempty"`
	Resource string `json:"resource,omitempty"`
}

// Create creates a CiliumNode, with a new UID if it was deleted before.
func (s *Server) Create(name string, spec Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := name + "-" + strconv.Itoa(s.version)
	s.put(name, Object{"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": Object{"name": name, "uid": uid}, "spec": spec}, "ADDED")
}

// Delete removes a CiliumNode.
func (s *Server) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(name, s.objects[name], "DELETED")
	delete(s.objects, name)
}

// Node returns a CiliumNode, and whether it exists.
func (s *Server) Node(t testing.TB, name string) (Node, bool) {
	t.Helper()
	s.mu.Lock()
	object, there := s.objects[name]
	data, err := json.Marshal(object)
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Metadata struct{ ResourceVersion string }
		Spec     struct {
			IPAM struct{ Pool map[string]Entry }
		}
		Status struct {
			IPAM struct {
				Used    map[string]Entry
				Release map[string]string `json:"release-ips"`
			}
		}
	}
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	return Node{o.Metadata.ResourceVersion, o.Spec.IPAM.Pool, o.Status.IPAM.Used, o.Status.IPAM.Release}, there
}

// UpdateStatus writes all used addresses and all handshakes, as the agent does. It returns false, and
// writes nothing, if the CiliumNode has another version.
func (s *Server) UpdateStatus(name, version string, used map[string]Entry, release map[string]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, there := s.objects[name]
	if !there || s.down || versionOf(old) != version {
		return false
	}
	changed := maps.Clone(old)
	changed["status"] = Object{"ipam": Object{"used": objects(used), "release-ips": objects(release)}}
	s.put(name, changed, "MODIFIED")
	return true
}

// SetPool writes entries of the pool without a version; nil removes one.
func (s *Server) SetPool(name string, entries Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := maps.Clone(s.objects[name])
	changed["spec"] = merge(changed["spec"], Object{"ipam": Object{"pool": entries}})
	s.put(name, changed, "MODIFIED")
}

// objects converts a map as JSON would.
func objects[V any](in map[string]V) Object {
	out := Object{}
	for key, value := range in {
		if e, ok := any(value).(Entry); ok {
			out[key] = Object{"owner": e.Owner, "resource": e.Resource}
			continue
		}
		out[key] = value
	}
	return out
}

// put stores an object with a new version, and wakes the watches.
func (s *Server) put(name string, object Object, how string) Object {
	object = s.record(resourceNodes, name, object, how)
	s.objects[name] = object
	return object
}

// record records a change of an object, and returns it with a new version.
func (s *Server) record(resource, name string, object Object, how string) Object {
	s.version++
	object = maps.Clone(object)
	meta, _ := object["metadata"].(Object)
	meta = maps.Clone(meta)
	meta["resourceVersion"] = strconv.Itoa(s.version)
	object["metadata"] = meta
	s.changes = append(s.changes, change{s.version, resource, name, how, object})
	close(s.changed)
	s.changed = make(chan struct{})
	return object
}

func versionOf(object Object) any {
	meta, _ := object["metadata"].(Object)
	return meta["resourceVersion"]
}
