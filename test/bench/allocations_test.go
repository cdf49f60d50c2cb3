package main

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The heap allocations of the daemon for a plugin call, and for a request for a held address. Lower them
// when they decrease. The race detector allocates, too, and so does the list of opened files with which go test decides
// whether a cached result is valid.
const (
	checkAllocations     = 242
	addAndDelAllocations = 560
	engineAllocations    = 26
	handlerAllocations   = 154
)

func TestAllocations(t *testing.T) {
	r, c := components(t)
	target := call.Call{Owner: owner, Invocation: c}
	result, err := r.Add(t.Context(), target)
	check.Must(t, err)
	held := target
	held.PrevResult = result.Raw
	e := heldEngine(t, 0)
	for _, tt := range []struct {
		name string
		runs int
		run  func() error
		max  float64
	}{
		{"CHECK", 20, func() error { return r.Check(t.Context(), held) }, checkAllocations},
		{"DEL and ADD", 20, func() error {
			if err := r.Del(t.Context(), target); err != nil {
				return err
			}
			_, err := r.Add(t.Context(), target)
			return err
		}, addAndDelAllocations},
		{"held, in the engine", 200, func() error {
			_, err := e.Allocate(context.Background(), engine.AllocateRequest{Owner: owner})
			return err
		}, engineAllocations},
		{"held, in the whole handler", 200, heldRequest(t, 0), handlerAllocations},
		{"held, in the whole handler, among 1,000 attachments", 200, heldRequest(t, 1000), handlerAllocations},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := testing.AllocsPerRun(tt.runs, func() { check.Must(t, tt.run()) })
			check.True(t, got <= tt.max, "%.0f heap allocations; want at most %.0f", got, tt.max)
		})
	}
}

// components is a runner of the real host-local, and the context of an ADD.
func components(t *testing.T) (*plugin.Runner, call.Invocation) {
	t.Helper()
	n := harness.NewNode(t)
	r, err := plugin.New(plugin.Options{
		BinDirs: []string{n.BinDir}, LockFile: filepath.Join(n.Dir, "locks"), IfName: "eth0", Timeout: time.Minute, Profiles: sync.OnceValues(profile.Load),
	})
	check.Must(t, err)
	nw := call.Network{Name: network, IPAMType: "host-local", PluginConfig: []byte(`{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":"` + n.StoreDir + `","ranges":[[{"subnet":"10.15.0.0/16"}]]}}`)}
	c, err := r.NewInvocation(context.Background(), nw, "a", owner)
	check.Must(t, err)
	return r, c
}
