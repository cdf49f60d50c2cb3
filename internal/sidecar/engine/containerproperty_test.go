package engine

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// containers are what a container runtime knows in TestProperties.
type containers struct {
	made int
	// running are the IDs of containers whose ADD succeeded, and ended others that it has used.
	running, ended []string
}

// containerWith returns a container of one of ten pods of a StatefulSet.
func containerWith(id string) call.Container {
	return call.Container{Attachment: call.Attachment{ContainerID: id, IfName: "eth0"}, Args: "K8S_POD_NAME=web-" + id[len(id)-1:]}
}

func (s *simulation) network() (name string) {
	s.node.with(func(n *fakeNode) { name = n.networks[client.DefaultPool] })
	return name
}

// AddContainer adds a new container, or repeats the ADD of a running one. No runtime reuses an ID.
func (s *simulation) AddContainer(rt *rapid.T) {
	var id string
	if n := len(s.containers.running); n > 0 && rapid.Bool().Draw(rt, "repeated") {
		id = s.containers.running[rapid.IntRange(0, n-1).Draw(rt, "container")]
	} else {
		s.containers.made++
		id = fmt.Sprint("container-", s.containers.made)
	}
	owner := protocol.ContainerOwner(id, "eth0")
	s.node.with(func(n *fakeNode) {
		if n.fault != nil { // a CHECK may report a loss wrongly, and then another address comes
			s.model.uncertain[owner] = true
		}
	})
	before, _ := s.engine.Lookup(client.DefaultPool, owner)
	a, err := s.engine.AddContainer(context.Background(), s.network(), containerWith(id))
	s.node.logStep("add", id, a.Addrs(), err)
	s.checkNotExcluded(rt, a, before)
	s.model.allocated(rt, owner, "", a, err)
	switch known := slices.Contains(s.containers.running, id); {
	case err == nil && len(a.LastResult()) == 0:
		rt.Fatalf("%s was added without a result", id)
	case err == nil && !known:
		s.containers.running = append(s.containers.running, id)
	case err != nil && !known:
		s.containers.ended = append(s.containers.ended, id)
		s.forgetContainer(id)
	}
}

// DelContainer deletes a container, one that has ended before, or one that was never added.
func (s *simulation) DelContainer(rt *rapid.T) {
	all := slices.Concat([]string{"container-unknown"}, s.containers.running, s.containers.ended)
	id := rapid.SampledFrom(all).Draw(rt, "container")
	s.containers.running = slices.DeleteFunc(s.containers.running, func(r string) bool { return r == id })
	s.forgetContainer(id)
	_, err := s.engine.DelContainer(context.Background(), s.network(), containerWith(id))
	s.node.logStep("delete", id, err)
	if err != nil { // the runtime repeats it
		s.containers.ended = append(s.containers.ended, id)
	}
}

// CollectGarbage names the running containers and the pods that use the plugin without the sidecar.
func (s *simulation) CollectGarbage(*rapid.T) {
	if len(s.model.forgotten) > 0 {
		return // the plugin would release what the owners will find
	}
	var valid []call.Attachment
	for _, id := range append([]string{"pod-1", "pod-2"}, s.containers.running...) {
		valid = append(valid, containerWith(id).Attachment)
	}
	s.node.logStep("GC", valid, s.engine.GC(context.Background(), s.network(), valid))
}

// forgetContainer notes that a container uses its addresses no more.
func (s *simulation) forgetContainer(id string) {
	owner := protocol.ContainerOwner(id, "eth0")
	maps.DeleteFunc(s.model.held, func(k claim, _ netip.Addr) bool { return k.owner == owner })
	maps.DeleteFunc(s.model.used, func(k claim, _ netip.Addr) bool { return k.owner == owner })
	delete(s.model.uncertain, owner)
}

// endContainers ends all containers without a DEL.
func (s *simulation) endContainers() {
	for _, id := range s.containers.running {
		s.forgetContainer(id)
	}
	s.containers = containers{made: s.containers.made}
}

// checkContainers fails if the container of a record ended with an earlier boot.
func (s *simulation) checkContainers(rt *rapid.T) {
	known := slices.Concat(s.containers.running, s.containers.ended)
	for _, a := range s.engine.List() {
		if protocol.OfContainer(a.Owner) && !slices.Contains(known, a.IDInUse()) {
			rt.Errorf("%s is %s, and its container ended with an earlier boot", a.Owner, a.State)
		}
	}
}
