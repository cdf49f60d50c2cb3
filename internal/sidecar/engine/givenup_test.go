package engine

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// An owner whose addresses were lost gets one of them back. It may use the other one until a response has
// another address of that family, or until it releases it: nobody else gets it.
func TestGivenUp(t *testing.T) {
	for name, end := range map[string]func(*fixture){
		"told":             func(f *fixture) { f.allocateFamily("router", record.IPv6) },
		"released":         func(f *fixture) { f.release("fd00::1") },
		"all released":     func(f *fixture) { f.release("10.0.0.1", "fd00::1"); f.wantNoAttachment() },
		"told after start": func(f *fixture) { f.restart(); f.allocateFamily("router", record.IPv6) },
	} {
		run(t, name, with(storeReadable), func(f *fixture) {
			f.allocate("router")
			f.clearStore()
			f.setStored("a-pod", "fd00::1")
			f.allocateFamily("router", record.IPv4)
			f.wantHeld("router", "10.0.0.1")
			f.setStored("a-pod")
			f.wantError(f.tryAllocate("finder"), protocol.Failed, "fd00::1", `owner "router"`)
			f.restart()
			f.wantError(f.tryAllocate("finder"), protocol.Failed, "fd00::1", `owner "router"`)
			end(f)
			f.allocate("finder")
			f.wantHeld("finder", "fd00::1")
			f.wantStoreAgrees()
		})
	}
}
