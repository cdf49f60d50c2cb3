package main

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
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
	r, _, c := components(t)
	target := call.Call{Owner: owner, Invocation: c}
	result, err := r.Add(t.Context(), target)
	check.Must(t, err)
	held := target
	held.PrevResult = result.Raw
	e, err := heldEngine(0)
	check.Must(t, err)
	alone, err := heldRequest(0)
	check.Must(t, err)
	among, err := heldRequest(1000)
	check.Must(t, err)
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
		{"held, in the whole handler", 200, alone, handlerAllocations},
		{"held, in the whole handler, among 1,000 attachments", 200, among, handlerAllocations},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := testing.AllocsPerRun(tt.runs, func() { check.Must(t, tt.run()) })
			t.Logf("%.0f allocations, at most %.0f", got, tt.max)
			if got > tt.max {
				t.Errorf("got %.0f heap allocations; want at most %.0f", got, tt.max)
			}
		})
	}
}

// components is a runner of the real host-local, and the context of an ADD.
func components(b testing.TB) (*plugin.Runner, call.Network, call.Invocation) {
	b.Helper()
	n := harness.NewNode(b)
	r, err := plugin.New(plugin.Options{
		BinDirs: []string{n.BinDir}, LockFile: filepath.Join(n.Dir, "locks"), IfName: "eth0", Timeout: time.Minute, Profiles: sync.OnceValues(profile.Load),
	})
	check.Must(b, err)
	nw := call.Network{Name: network, IPAMType: "host-local", PluginConfig: []byte(`{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":"` + n.StoreDir + `","ranges":[[{"subnet":"10.15.0.0/16"}]]}}`)}
	c, err := r.NewInvocation(context.Background(), nw, "a", owner)
	check.Must(b, err)
	return r, nw, c
}

func BenchmarkNewInvocation(b *testing.B) {
	r, nw, _ := components(b)
	b.ReportAllocs()
	for b.Loop() {
		_, err := r.NewInvocation(context.Background(), nw, "a", owner)
		check.Must(b, err)
	}
}

func BenchmarkJournalWrite(b *testing.B) {
	r, _, c := components(b)
	result, err := r.Add(context.Background(), call.Call{Invocation: c})
	check.Must(b, err)
	c.PrevResult, result.Raw = result.Raw, nil
	state, err := statedir.Lock(b.Context(), filepath.Join(b.TempDir(), "state"), statedir.Holder{}, nil)
	check.Must(b, err)
	j := journal.Open(state, journal.Options{})
	b.Cleanup(func() { j.Close(); _ = state.Close() })
	rec := attachment.Record{ContainerID: "a", Owner: owner, Pool: "default", State: attachment.Held, Network: network, Result: result, Invocations: []call.Invocation{c}}
	b.ReportAllocs()
	for b.Loop() {
		check.Must(b, j.Write(rec))
	}
}
